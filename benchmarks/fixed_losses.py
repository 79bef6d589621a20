"""The losses of a few steps of every task, to the last bit: does a change to the package alter them?

    python benchmarks/fixed_losses.py --data ../shared/data --out before.json
    …                                                              change the package
    python benchmarks/fixed_losses.py --data ../shared/data --against before.json

Every case runs the public command in a separate process, on the CPU with one thread and a fixed seed, and reads the
losses and metrics from metrics.jsonl. The bits depend on the processor and on the version of torch, so only compare
runs on the same machine. RECIPES are shipped recipes with fewer steps; COMMANDS use zero configuration.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from provenance import stamp

ROOT = Path(__file__).parent.parent
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STEPS = 6
SHORT = {"steps": STEPS, "log_every": 1, "validate_every": STEPS, "save_every": STEPS}

# One shipped recipe per task, and the settings that shorten it.
RECIPES: dict[str, dict[str, Any]] = {
    "multi30k-en-de": {"train": {"tokens": 512}, "evaluate": {"max_validation": 20, "validation_beam": 2}},
    "shakespeare-char-small": {"data": {"held_out": 0.01}},
    "lstm-ptb-small": {"data": {"valid": "test"}},
    "bert-mini": {"train": {"tokens": 1024}, "data": {"valid": "test"}},
    "t5-mini": {"train": {"tokens": 1024}, "data": {"held_out": 0.02}},
    "rt-polarity": {},
    "fashion-resnet18": {"train": {"tokens": 16}, "data": {"held_out": 0.005}},
    "autoencoder-fashion": {"train": {"tokens": 64}, "data": {"held_out": 0.02}},
    "speech-digits": {"train": {"tokens": 1024}},
}
SET = ["--set", "train.log_every=1", "--set", f"train.validate_every={STEPS}"]
SET += ["--set", f"train.steps={STEPS}", "--set", f"train.save_every={STEPS}"]
COMMANDS: dict[str, list[str]] = {
    "pairs": ["train", "--pairs", "pairs.tsv"],
    "pairs-bahdanau": ["train", "--pairs", "pairs.tsv", "--model", "bahdanau"],
    "text": ["train", "--text", "text.txt"],
    "text-bert": ["train", "--text", "text.txt", "--model", "bert"],
    "labels": ["train", "--labels", "reviews.tsv"],
    "images": ["train", "--images", "images"],
    "pairs-more": ["finetune", "--model", "pairs", "--pairs", "pairs.tsv"],
    "pairs-lora": ["finetune", "--model", "pairs", "--pairs", "pairs.tsv", "--method", "lora"],
    "text-more": ["finetune", "--model", "text", "--text", "text.txt"],
    "text-prefix": ["finetune", "--model", "text", "--text", "text.txt", "--method", "prefix"],
    "labels-full": ["finetune", "--model", "text-bert", "--labels", "reviews.tsv"],
    "labels-lora": ["finetune", "--model", "text-bert", "--labels", "reviews.tsv", "--method", "lora"],
    "labels-head": ["finetune", "--model", "text-bert", "--labels", "reviews.tsv", "--method", "head"],
    "images-head": ["finetune", "--model", "images", "--images", "images", "--method", "head"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the corpora")
    parser.add_argument("--out", type=Path, help="file to write the losses to")
    parser.add_argument("--against", type=Path, help="file of losses to compare with; exit status 1 if any bit differs")
    parser.add_argument("--package", type=Path, default=ROOT, help="checkout of the package to run")
    parser.add_argument("--only", action="append", default=[], help="run only this case; repeatable")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make_corpora(options.data.resolve(), work)
        for case, arguments in cases(options.data.resolve(), work).items():
            if not options.only or case in options.only:
                results[case] = run(arguments, work / case, work, options.package.resolve())
                print(f"{case:24} {results[case]['train'][-1]}  {results[case]['valid'][-1]}", flush=True)
    if options.out is not None:
        options.out.write_text(
            json.dumps({**stamp("python benchmarks/fixed_losses.py"), "cases": results}, indent=1) + "\n"
        )
    if options.against is not None:
        before = json.loads(options.against.read_text())["cases"]
        changed = [case for case in results if before.get(case) != results[case]]
        print(
            f"bit-equal: {len(results) - len(changed)} of {len(results)}"
            + "".join(f"\nchanged: {case}" for case in changed)
        )
        sys.exit(bool(changed))


def cases(data: Path, work: Path) -> dict[str, list[str]]:
    """The arguments of each case, ordered so that fine-tuning cases follow the case of their base."""
    arguments_by_case: dict[str, list[str]] = {}
    for name, changes in RECIPES.items():
        table = tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text())
        root = Path(table["data"]["root"]).relative_to("../shared/data")
        table["data"]["root"] = str(work / root if (work / root).exists() else data / root)
        for section, keys in {**changes, "train": {**SHORT, **changes.get("train", {})}}.items():
            for key, value in keys.items():
                is_split = section == "data" and key == "valid"
                table.setdefault(section, {})[key] = table["data"][value] if is_split else value
        table["data"].pop("test", None)
        (work / f"{name}.toml").write_text(tomli_w.dumps(table))
        arguments_by_case[name] = ["train", f"{name}.toml"]
    return {**arguments_by_case, **{name: [*arguments, *SET] for name, arguments in COMMANDS.items()}}


def run(arguments: list[str], out: Path, work: Path, package: Path) -> dict[str, list[Any]]:
    """Train by the command, and return the losses of its steps and its validation metrics as hexadecimal floats."""
    command = [sys.executable, "-m", "clearformer", *arguments, "--out", str(out), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package)}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    train = [line["loss"].hex() for line in lines if line["kind"] == "train"]
    scores = [{k: float(v).hex() for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == "valid"]
    return {"train": train, "valid": scores}


def make_corpora(data: Path, work: Path) -> None:
    """Prepare the corpora as described in the headers of the recipes, and small files for the commands."""
    reviews = work / "rt-polarity" / "rt-polarity.tsv"
    reviews.parent.mkdir()
    with reviews.open("w", encoding="utf-8") as file:
        for label in ("neg", "pos"):
            lines = gzip.decompress((data / "rt-polarity" / f"rt-polarity.{label}.gz").read_bytes()).decode("cp1252")
            file.writelines(f"{' '.join(line.split())}\t{label}\n" for line in lines.split("\n") if line.strip())
    recordings = work / "fsdd" / "recordings"
    with tarfile.open(data / "fsdd" / "recordings.tar.gz") as archive:
        archive.extractall(work / "fsdd", filter="data")
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for path in sorted(recordings.glob("*.wav")):
        digit, speaker, index = path.stem.split("_")
        split = "test" if int(index) < 5 else "valid" if int(index) < 7 else "train"
        splits[split].append(f"{path.name}\t{WORDS[int(digit)]}\t{speaker}\n")
    for split, rows in splits.items():
        (recordings / f"{split}.tsv").write_text("".join(rows))
    some = reviews.read_text(encoding="utf-8").splitlines(keepends=True)
    (work / "reviews.tsv").write_text("".join(some[::20]), encoding="utf-8")
    text = (data / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    (work / "text.txt").write_text(text[:60_000], encoding="utf-8")
    with gzip.open(data / "tatoeba-eng-fra" / "fra.txt.gz", "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t")[:2] for _, line in zip(range(40_000), file)]
    (work / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs[::50]), encoding="utf-8")
    make_images(work / "images")


def make_images(folder: Path) -> None:
    """Two classes of small images: horizontal bars and vertical bars."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in ("lying", "standing"):
        (folder / label).mkdir(parents=True)
        for i in range(40):
            pixels = draw.integers(0, 60, (16, 16, 3), dtype="uint8")
            at = draw.integers(2, 13)
            pixels[at : at + 2] = 220
            Image.fromarray(pixels if label == "lying" else pixels.transpose(1, 0, 2)).save(folder / label / f"{i}.png")


if __name__ == "__main__":
    main()
