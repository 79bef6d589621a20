"""Kill random ranks of a training under `torchrun --max-restarts`, and compare its weights with an undisturbed run.

    python benchmarks/restarts.py --kills 20 --ranks 2,4        CPU, gloo; about 50 minutes, most of them spent waiting

The command is never changed: torchrun starts all ranks again, and they continue from the last checkpoint. A quarter of
the kills comes while the processes start, the others come at random steps. In the last part, half of the kills hit four
ranks; then all processes are killed, torchrun included, and the same command goes on with two ranks. This part is in
float64, where the losses differ from those of four undisturbed ranks by rounding only.

Where no torchrun looks after the processes, as with srun, they must notice themselves that one of them has died or
stopped. `silence` measures how long that takes, with train.timeout = 10.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.checkpoint import load_tensors
from clearformer.training.journal import read_metrics

SETTINGS = {
    "text.kind": "char", "model.n_encoder_layers": 1, "model.n_decoder_layers": 1, "model.d_model": 16,
    "model.d_ff": 16, "model.n_heads": 2, "train.tokens": 64, "train.accumulation": 2, "train.save_every": 3,
    "train.log_every": 4, "train.validate_every": 20, "train.metric": "loss", "decode.beam": 1,
}  # fmt: skip
KILL, STOP = 9, 19
SILENCE = 10  # train.timeout, in seconds


def write_inputs(folder: Path, steps: int, **settings: Any) -> None:
    """A corpus of sentences to be reversed, and a recipe for it."""
    draw, pairs = random.Random(3), folder / "pairs.tsv"
    lines = [" ".join(draw.choices(["ab", "cd", "efg", "hi"], k=draw.randint(2, 6))) for _ in range(300)]
    pairs.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")
    recipe = clearformer.plan(pairs=pairs, settings=SETTINGS | settings, steps=steps, device="cpu")
    (folder / "recipe.toml").write_text(recipe.dump(), encoding="utf-8")


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(clearformer.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def train_command(folder: Path, out: str, *more: str) -> list[str]:
    files = [str(folder / "recipe.toml"), "--out", str(folder / out)]
    return ["-m", "clearformer", "train", *files, "--device", "cpu", *more]


class Launch:
    """`clearformer train` in several processes, which torchrun restarts together; their messages go to OUT.log."""

    def __init__(self, folder: Path, out: str, ranks: int, *more: str) -> None:
        self.run, self.log, self.ranks = folder / out, folder / f"{out}.log", ranks
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += ["--max-restarts=60", *train_command(folder, out, *more)]
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def finish(self, seconds: float = 1800) -> None:
        """Wait for the end, and raise if it is a failure."""
        if self.process.wait(seconds):
            raise RuntimeError(self.log.read_text(encoding="utf-8")[-3000:])

    def workers(self) -> list[int]:
        """The processes that torchrun has started, by rank; none while some of them are missing."""
        found: dict[int, int] = {}
        for children in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with suppress(OSError):  # a process that ends meanwhile
                for child in children.read_text().split():
                    for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                        if entry.startswith(b"RANK="):
                            found[int(entry[5:])] = int(child)
        return [found[rank] for rank in sorted(found)] if len(found) == self.ranks else []

    def journal(self) -> tuple[int, int]:
        """Which file metrics.jsonl is, since each start writes another one, and the last step in it."""
        path = self.run / "metrics.jsonl"
        with suppress(OSError, ValueError):
            lines = read_metrics(path)
            return path.stat().st_ino, lines[-1]["step"] if lines else 0
        return 0, 0

    def wait(self, is_reached: Callable[[], bool]) -> bool:
        """Wait until something is reached, or the end; return whether it was reached."""
        while not self.is_over:
            if is_reached():
                return True
            time.sleep(0.01)
        return False

    def kill_at(self, steps: Iterable[int], draw: random.Random) -> int:
        """Kill a random rank at about each of these steps, or on the way there; return the number of kills."""
        self.old, self.file, done = set[int](), 0, 0
        for step in steps:
            is_early = draw.random() < 0.25
            if not self.wait(self.is_started) or not (is_early or self.wait(partial(self.is_training, step))):
                break
            pids = self.workers()
            time.sleep(draw.uniform(0.0, 3.0 if is_early else 0.3))
            if pids and self.workers() == pids and not self.is_over:
                self.old, self.file, done = {*pids}, self.journal()[0], done + 1
                os.kill(draw.choice(pids), KILL)
        return done

    def is_started(self) -> bool:
        """Whether there are new processes since the last kill."""
        return bool(pids := self.workers()) and not self.old & {*pids}

    def is_training(self, step: int) -> bool:
        """Whether they have reached this step."""
        file, reached = self.journal()
        return file != self.file and reached >= step

    def end(self) -> None:
        """Kill torchrun and all ranks, as a power failure would."""
        pids = self.workers()
        self.process.kill()
        self.process.wait()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, KILL)


def at_random(steps: int, kills: int, draw: random.Random) -> list[int]:
    return sorted(draw.randrange(max(1, steps)) for _ in range(kills))


def kill_ranks(folder: Path, out: str, ranks: int, kills: int, steps: int) -> int:
    """Kill random ranks of a run, and wait for its end; return how many kills came before it."""
    draw, launch = random.Random(ranks), Launch(folder, out, ranks)
    done = launch.kill_at(at_random(steps - 20, kills, draw), draw)
    launch.finish()
    return done


def are_equal(one: Path, two: Path) -> bool:
    """Whether the best weights and the last checkpoint of two runs are the same, bit for bit."""
    for name in ("last.safetensors", "model.safetensors"):
        a, b = load_tensors(one / name)[0], load_tensors(two / name)[0]
        if a.keys() != b.keys() or not all(torch.equal(a[key], b[key]) for key in a):
            return False
    return True


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]


def fewer_ranks(folder: Path, kills: int, steps: int) -> dict[str, Any]:
    """Train with four ranks, and with four that become two in the middle; compare their losses."""
    draw = random.Random(6)
    write_inputs(folder, steps, **{"train.precision": "float64", "model.dropout": 0, "train.resume": "always"})
    Launch(folder, "four", 4).finish()
    launch = Launch(folder, "fewer", 4)
    done = launch.kill_at(at_random(steps // 2, kills // 2, draw), draw)
    launch.wait(lambda: launch.journal()[1] >= steps // 2)
    launch.end()
    launch = Launch(folder, "fewer", 2)
    done += launch.kill_at([steps // 2 + step for step in at_random(steps // 2 - 20, kills - kills // 2, draw)], draw)
    launch.finish()
    four, fewer = losses(folder / "four"), losses(folder / "fewer")
    assert len(four) == len(fewer) == steps // 4
    return {
        "kills": done,
        "largest_loss_difference": max(abs(a - b) for a, b in zip(four, fewer)),
        "files_left_over": left_over(folder / "fewer"),
    }


def silence(folder: Path, ranks: int, number: int, draw: random.Random) -> float:
    """Send a signal to one of several processes without torchrun; return the seconds until all others have ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    out = f"silent-{ranks}-{number}-{port}"
    command = [sys.executable, *train_command(folder, out, "--set", f"train.timeout={SILENCE}")]
    common = environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
    with open(folder / f"{out}.log", "w", encoding="utf-8") as log:
        environments = [{**common, "RANK": str(rank)} for rank in range(ranks)]
        processes = [subprocess.Popen(command, env=each, stdout=log, stderr=log) for each in environments]
    try:
        while not (folder / out / "last.safetensors").exists():
            if any(process.poll() is not None for process in processes):
                raise RuntimeError((folder / f"{out}.log").read_text(encoding="utf-8")[-3000:])
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 1.0))
        lost = draw.choice(processes)
        lost.send_signal(number)
        begun = time.monotonic()
        codes = [process.wait(20 * SILENCE) for process in processes if process is not lost]
        assert all(codes), f"exit codes {codes}: a process that has lost another one must fail"
        return time.monotonic() - begun
    finally:
        for process in processes:
            process.kill()
            process.wait()


def left_over(run: Path) -> int:
    """The number of temporary files in a run folder."""
    return len([*run.rglob(".*")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS / "restarts.json")
    args = parser.parse_args()
    facts = stamp(f"python benchmarks/restarts.py --kills {args.kills} --ranks {args.ranks} --steps {args.steps}")
    result: dict[str, Any] = {"what": "kill -9 of random ranks under torchrun --max-restarts, gloo on the CPU"}
    result |= {"steps": args.steps}
    for ranks in map(int, args.ranks.split(",")):
        with TemporaryDirectory() as name:
            folder, begun = Path(name), time.time()
            write_inputs(folder, args.steps)
            Launch(folder, "peace", ranks).finish()
            alone, begun = time.time() - begun, time.time()
            result[f"{ranks}_ranks"] = {
                "kills": kill_ranks(folder, "killed", ranks, args.kills, args.steps),
                "bit_equal": are_equal(folder / "peace", folder / "killed"),
                "files_left_over": left_over(folder / "killed"),
                "refused_connections": (folder / "killed.log").read_text(encoding="utf-8").count("Connection refused"),
                "seconds": round(time.time() - begun),
                "seconds_undisturbed": round(alone),
            }
            record({**result, **facts}, args.out)
    with TemporaryDirectory() as name:
        draw, folder = random.Random(8), Path(name)
        write_inputs(folder, 5000)
        for ranks in map(int, args.ranks.split(",")):
            for what, number in (("killed", KILL), ("stopped", STOP)):
                seconds = [silence(folder, ranks, number, draw) for _ in range(5)]
                result[f"{ranks}_ranks"][f"longest_seconds_to_notice_{what}"] = round(max(seconds), 1)
        result["train.timeout"] = SILENCE
    with TemporaryDirectory() as name:
        result["four_to_two_ranks"] = fewer_ranks(Path(name), args.kills, args.steps)
    record({**result, **facts}, args.out)


if __name__ == "__main__":
    main()
