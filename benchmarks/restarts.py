"""Kill random ranks of a training under `torchrun --max-restarts`, and compare its weights with a run left in peace.

    python benchmarks/restarts.py --kills 20 --ranks 2,4        CPU, gloo; about ten minutes

The command is never changed: torchrun starts all ranks again, and they continue from the last checkpoint. A change from
four ranks to two is measured in float64, where the losses may differ by rounding only.
"""

import argparse
import os
import random
import subprocess
import sys
import time
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
    "train.log_every": 4, "train.validate_every": 20, "train.metric": "loss", "train.timeout": 20, "decode.beam": 1,
}  # fmt: skip


def write_inputs(folder: Path, steps: int, **settings: Any) -> None:
    """A corpus of sentences to be reversed, and a recipe for it."""
    draw, pairs = random.Random(3), folder / "pairs.tsv"
    lines = [" ".join(draw.choices(["ab", "cd", "efg", "hi"], k=draw.randint(2, 6))) for _ in range(300)]
    pairs.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")
    recipe = clearformer.plan(pairs=pairs, settings=SETTINGS | settings, steps=steps, device="cpu")
    (folder / "recipe.toml").write_text(recipe.dump(), encoding="utf-8")


def torchrun(folder: Path, out: str, ranks: int, *more: str) -> subprocess.Popen[str]:
    """`clearformer train` in several processes, which are restarted together; their messages go to OUT.log."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["--max-restarts=60", "-m", "clearformer", "train", str(folder / "recipe.toml")]
    command += ["--out", str(folder / out), "--device", "cpu", *more]
    path = os.pathsep.join([str(Path(clearformer.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with open(folder / f"{out}.log", "a", encoding="utf-8") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)


def workers(launcher: int) -> list[int]:
    """The processes that torchrun has started, by rank."""
    found: dict[int, int] = {}
    for children in Path(f"/proc/{launcher}/task").glob("*/children"):
        for child in children.read_text().split():
            for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"RANK="):
                    found[int(entry[5:])] = int(child)
    return [found[rank] for rank in sorted(found)]


def kill_at_random(folder: Path, out: str, ranks: int, kills: int, seed: int) -> int:
    """Kill random ranks of a run while it trains, with kill -9; return how many kills came before its end."""
    draw, launcher, done, path = random.Random(seed), torchrun(folder, out, ranks), 0, folder / out / "metrics.jsonl"
    while launcher.poll() is None:
        before = path.stat().st_ino if path.exists() else 0
        while launcher.poll() is None and (not path.exists() or path.stat().st_ino == before):
            time.sleep(0.01)  # each start opens metrics.jsonl anew
        time.sleep(draw.uniform(0.0, 0.6))
        alive = workers(launcher.pid) if launcher.poll() is None else []
        if done < kills and len(alive) == ranks:
            os.kill(draw.choice(alive), 9)
            done += 1
    if launcher.returncode:
        raise RuntimeError((folder / f"{out}.log").read_text(encoding="utf-8")[-3000:])
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


def fewer_ranks(folder: Path) -> float:
    """Train with four ranks, and with four and then two; return the largest difference of their losses."""
    write_inputs(folder, 12, **{"train.precision": "float64", "model.dropout": 0})
    for out, more in (("four", []), ("fewer", ["--set", "train.pause=6"])):
        assert torchrun(folder, out, 4, *more).wait() == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "clearformer"]
    command += ["train", "--resume", "--out", str(folder / "fewer"), "--set", "train.pause=none", "--device", "cpu"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    four, fewer = losses(folder / "four"), losses(folder / "fewer")
    assert len(four) == len(fewer) == 3
    return max(abs(a - b) for a, b in zip(four, fewer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=RESULTS / "restarts.json")
    args = parser.parse_args()
    result: dict[str, Any] = {"what": "kill -9 of random ranks under torchrun --max-restarts, gloo on the CPU"}
    for ranks in map(int, args.ranks.split(",")):
        with TemporaryDirectory() as name:
            folder = Path(name)
            write_inputs(folder, args.steps)
            assert torchrun(folder, "peace", ranks).wait() == 0
            begun = time.time()
            kills = kill_at_random(folder, "killed", ranks, args.kills, seed=ranks)
            result[f"{ranks} ranks"] = {
                "kills": kills,
                "bit_equal": are_equal(folder / "peace", folder / "killed"),
                "files_left_over": len([*(folder / "killed").rglob(".*")]),
                "seconds": round(time.time() - begun),
            }
            record({**result, **stamp("python benchmarks/restarts.py")}, args.out)
    with TemporaryDirectory() as name:
        result["four_to_two_ranks_largest_loss_difference"] = fewer_ranks(Path(name))
    record({**result, **stamp("python benchmarks/restarts.py")}, args.out)


if __name__ == "__main__":
    main()
