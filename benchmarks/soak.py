"""An hour of training, killing, resuming, translating and evaluating at random, on two cores: is anything lost?

    python benchmarks/soak.py --minutes 60 [--seed 0] [--patience 12]

A small translator is trained once without disturbance. Then the same training is started again and again, and at a
random moment, at most `patience` seconds after its start, ended by a random signal (SIGKILL, SIGTERM, SIGINT, SIGHUP),
and resumed, until it is complete. Its weights must be those of the first training, bit for bit, and its folder must
hold the same files. Meanwhile, a second process, which lives as long as the soak, opens the model of whatever is in
the folder, translates with it and evaluates it, at random; `translate` and `evaluate` are also run as commands. A run
folder that has no model yet may refuse them in one sentence; anything else is a failure, as is a refusal of the first
training, which nobody disturbs.

memory     of the process that translates and evaluates: the median of the resident memory in the last third of the
           time, against the median of the second third; in the first third, the allocator still finds its size. And
           the peaks of completed trainings: the median of the second half against the median of the first half
files      of the folder of each completed run; and of the folder for temporary files, which must end empty
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from provenance import RESULTS, record, stamp

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STEPS = 160
SETTINGS = (
    "model.d_model=32", "model.d_ff=64", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1",
    "text.vocab_size=400", "train.tokens=512", "train.validate_every=20", "train.save_every=10", "train.log_every=5",
    f"train.steps={STEPS}", "train.seed=7",
)  # fmt: skip
TEXTS = ["the boy reads a book", "I see the river", "where is the school"]
GROWTH = 1.02  # ratio of medians that is still no growth
TEN_MINUTES = 600


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=12, help="seconds; few of them disturb the preparation most")
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    parser.add_argument("--reader", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        read_on(Path(options.reader[0]), Path(options.reader[1]), int(options.reader[2]))
        return
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        facts = Soak(Path(name), options.seed, options.patience).run(60 * options.minutes)
    shown = (
        f"python benchmarks/soak.py --minutes {options.minutes:g} --seed {options.seed} --patience {options.patience:g}"
    )
    settings = {"minutes": options.minutes, "seed": options.seed, "patience": options.patience}
    record({**settings, **facts, **stamp(shown)}, options.out)
    sys.exit(1 if facts["failures"] else 0)


class Soak:
    def __init__(self, folder, seed, patience=12):
        self.folder, self.draw, self.patience = folder, random.Random(seed), patience
        self.straight, self.run_folder, self.temporary = folder / "straight", folder / "run", folder / "tmp"
        self.counts, self.failures, self.peaks = Counter(), [], []
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        self.environment["CLEARFORMER_CACHE"] = str(folder / "cache")

    def run(self, seconds):
        write_corpus(self.folder)
        self.train(self.straight)
        self.peaks.append(peak_of(self.straight))
        ends = time.monotonic() + seconds
        seed, command = self.draw.randrange(10**6), [sys.executable, __file__, "--reader"]
        log = open(self.folder / "reader.jsonl", "w")  # noqa: SIM115
        reader = subprocess.Popen([*command, self.run_folder, self.folder, str(seed)], stdout=log, env=self.environment)
        commands = threading.Thread(target=self.use, args=(ends,))
        commands.start()
        while time.monotonic() < ends and not self.failures:
            self.disturb(ends)
        commands.join()
        reader.send_signal(signal.SIGTERM)
        self.check(reader.wait() in (0, -signal.SIGTERM), f"the reading process ended with {reader.returncode}")
        return self.facts(seconds)

    # --- training

    def command(self, out):
        if (out / "recipe.toml").exists():
            return ["train", "--resume", "--out", out]
        sets = [part for setting in SETTINGS for part in ("--set", setting)]
        return ["train", "--pairs", self.folder / "train.tsv", "--device", "cpu", "--out", out, *sets]

    def train(self, out):
        done = self.clearformer(*self.command(out))
        if done.returncode:
            raise SystemExit(f"the undisturbed training failed: {done.stderr[-2000:]}")

    def disturb(self, ends):
        """Train the run to its end, through kills; then compare it, and remove it."""
        out = self.run_folder
        while True:
            process = self.start(*self.command(out))
            kind, moment = self.draw.choice(SIGNALS), self.draw.uniform(0.3, self.patience)
            is_left_alone = time.monotonic() > ends or self.draw.random() < 0.1
            try:
                _, error = process.communicate(timeout=None if is_left_alone else moment)
            except subprocess.TimeoutExpired:
                process.send_signal(kind)
                self.counts[f"ended by {kind.name}"] += 1
                _, error = process.communicate()
                if process.returncode not in (0, -kind, 128 + kind):
                    self.failures.append(f"{kind.name}: exit {process.returncode}: {error[-600:]}")
                    return
            else:
                if process.returncode:
                    self.failures.append(f"train ended with {process.returncode}: {error[-600:]}")
                    return
            if process.returncode == 0:
                break
            if not (out / "recipe.toml").exists() and out.exists() and not (out / "requested.toml").exists():
                shutil.rmtree(out)  # killed before there was a run
        self.compare(out)
        shutil.rmtree(out)

    def compare(self, out):
        self.counts["completed runs"] += 1
        self.peaks.append(peak_of(out))
        for name in ("last.safetensors", "model.safetensors"):
            self.check(same_tensors(self.straight / name, out / name), f"{name} differs from an undisturbed run")
        ours, theirs = (sorted(str(p.relative_to(d)) for p in d.rglob("*")) for d in (out, self.straight))
        self.check(ours == theirs, f"other files than an undisturbed run: {sorted(set(ours) ^ set(theirs))}")

    # --- use

    def use(self, ends):
        """Run commands on whatever is in the folder."""
        draw = random.Random(self.draw.randrange(10**6))
        while time.monotonic() < ends and not self.failures:
            time.sleep(draw.uniform(2, 12))
            run = draw.choice((self.run_folder, self.straight))
            verb = draw.choice(("translate", "evaluate"))
            more = [*TEXTS] if verb == "translate" else ["--pairs", self.folder / "test.tsv"]
            done = self.clearformer(verb, "--model", run, *more, "--device", "cpu")
            self.counts[f"{verb} {'done' if done.returncode == 0 else 'refused'}"] += 1
            is_refusal = done.returncode in (1, 2) and "Traceback" not in done.stderr
            is_fair = done.returncode == 0 or (is_refusal and run != self.straight)
            self.check(is_fair, f"{verb}: exit {done.returncode}: {done.stderr[-600:]}")

    # --- results

    def facts(self, seconds):
        lines = [json.loads(line) for line in (self.folder / "reader.jsonl").read_text().splitlines()]
        for line in lines:
            is_fair = line["did"] != "failed" and (line["did"] != "refused" or line["folder"] == self.run_folder.name)
            self.check(is_fair, f"reader, {line.get('folder')}: {line.get('error', '')[-600:]}")
            self.counts[f"reader: {line['did']}"] += 1
        for what in ("translate", "evaluate"):
            self.check(self.counts[f"reader: {what}"] > 0, f"the reading process did not {what} once")
        readings = [(line["at"] - lines[0]["at"], line["mb"]) for line in lines]
        second, third = (median_of(mb for at, mb in readings if n <= 3 * at / seconds < n + 1) for n in (1, 2))
        self.check(third <= GROWTH * second, f"resident memory grew from {second} to {third} MB")
        half = len(self.peaks) // 2
        early, late = median_of(self.peaks[:half]), median_of(self.peaks[half:])
        self.check(late <= GROWTH * early, f"peaks of trainings grew from {early} to {late} MB")
        periods = range(math.ceil(seconds / TEN_MINUTES))
        left = sorted(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*"))
        self.check(not left, f"temporary files are left: {left[:5]}")
        return {
            "failures": self.failures,
            "counts": dict(sorted(self.counts.items())),
            "reader_mb_by_ten_minutes": [
                median_of(mb for at, mb in readings if at // TEN_MINUTES == n) for n in periods
            ],
            "reader_mb": {"second_third": second, "last_third": third},
            "training_peak_mb": {"first_half": early, "second_half": late, "highest": max(self.peaks)},
            "temporary_files_left": len(left),
        }

    def check(self, is_right, message):
        if not is_right:
            self.failures.append(message)

    def start(self, *arguments):
        command = [sys.executable, "-m", "clearformer", *map(str, arguments)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def clearformer(self, *arguments):
        process = self.start(*arguments)
        _, error = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, None, error)


def read_on(run, folder, seed):
    """Open the model of a run that is being trained, killed and removed, again and again; print what happened."""
    import traceback

    import clearformer
    from clearformer.errors import ClearformerError
    from clearformer.memory import resident_mb

    draw, facts = random.Random(seed), {}
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        opened = draw.choice((run, folder / "straight"))
        try:
            model = clearformer.load(opened, device="cpu")
            model.translate(TEXTS, beam=draw.choice((1, 2, 4)))
            facts = {"did": "translate"}
            if draw.random() < 0.3:
                opened = folder / "straight"
                clearformer.evaluate(opened, pairs=folder / "test.tsv", device="cpu")
                facts = {"did": "evaluate"}
        except (ClearformerError, FileNotFoundError) as error:  # some file may be removed between two reads
            facts = {"did": "refused", "folder": opened.name, "error": str(error)}
        except Exception:
            facts = {"did": "failed", "folder": opened.name, "error": traceback.format_exc()}
        model = None
        print(json.dumps({**facts, "at": time.monotonic(), "mb": round(resident_mb(), 1)}), flush=True)
        time.sleep(draw.uniform(0.2, 1.5))


def median_of(values):
    return round(statistics.median([*values] or [0.0]), 1)


def same_tensors(one, two):
    import torch

    from clearformer.checkpoint import load_tensors

    (a, _), (b, _) = load_tensors(one), load_tensors(two)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def peak_of(run):
    return json.loads((run / "report.json").read_text())["peak_mb"]


def write_corpus(folder):
    from clearformer.bundled.corpus import generate

    lines = [f"{pair.english}\t{pair.hindi}\n" for pair in generate(900)]
    (folder / "train.tsv").write_text("".join(lines[:800]))
    (folder / "test.tsv").write_text("".join(lines[800:840]))


if __name__ == "__main__":
    main()
