"""Zero configuration of classifiers by a table, as it was in version 0.1, and by smooth functions, side by side.

    python benchmarks/smooth_classes.py [--data FOLDER] [--only labels] [--sizes 1000,2000] [--seeds 0,1]
    python benchmarks/smooth_classes.py --only images --sizes 500,1000,2000,3000 --scale 0.2 --tests 2000

Test accuracy of `clearformer train --labels FILE` on 1,000 to 9,000 film reviews (rt-polarity; 1,066 others are test
data), and of `clearformer train --images FILE` on 1,000 to 5,000 images (Fashion-MNIST with its test data), on a CPU.
`old` gets the settings of the former table with --set, `new` gets nothing but the seed; two seeds each. The corpora are
nested. With --scale, both arms are trained for this fraction of the steps that they choose, so that a slow computer can
run the comparison. Finished runs are only read: repeat the command if it was interrupted.
"""

import argparse
import gzip
import json
import os
import random
import shlex
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from provenance import RESULTS, record, stamp
from quality import train

import clearformer
from clearformer.data.files.arrays import read_idx

SIZES = {"labels": (1_000, 2_000, 5_000, 9_000), "images": (1_000, 2_000, 5_000)}
ARMS = ("old", "new")
HELD_OUT, TESTS = 0.1, 1_066

# The former tables, unchanged. Columns: maximum number of texts, layers, width, vocabulary, tokens per step, epochs,
# learning rate; and maximum number of images, blocks of each stage, images per step, epochs.
TEXTS = [(2_000, 1, 64, 2_000, 1024, 40, 2e-3), (50_000, 2, 128, 8_000, 2048, 20, 1e-3)]
IMAGES = [(2_000, [1, 1, 1], 32, 40), (20_000, [3, 3, 3], 128, 30)]


def schedule(steps: int) -> dict[str, object]:
    period = max(5, steps // 20)
    return {
        "schedule.warmup": steps // 10,
        "train.steps": steps,
        "train.validate_every": period,
        "train.save_every": period,
        "train.log_every": min(50, period),
    }


def old_texts(n: int, mean_chars: float) -> dict[str, object]:
    _, layers, width, vocabulary, tokens, epochs, lr = next(row for row in TEXTS if n <= row[0])
    steps = int(max(200, round(epochs * n * (mean_chars / 4 + 3) / tokens, -1)))
    sizes = {"n_layers": layers, "d_model": width, "d_ff": 4 * width}
    settings: dict[str, object] = {f"model.base.{name}": value for name, value in sizes.items()}
    settings |= {"text.vocab_size": vocabulary, "optim.lr": lr, "train.tokens": tokens}
    return settings | schedule(steps)


def old_images(n: int) -> dict[str, object]:
    _, depths, rows, epochs = next(row for row in IMAGES if n <= row[0])
    steps = int(max(200, round(epochs * n / rows, -1)))
    return {"model.depths": depths, "optim.lr": 0.1 * rows / 128, "train.tokens": rows} | schedule(steps)


def write_reviews(data: Path, folder: Path, sizes: list[int]) -> dict[int, tuple[list[str], dict[str, object]]]:
    rows = []
    for label, name in (("negative", "neg"), ("positive", "pos")):
        text = gzip.decompress((data / f"rt-polarity/rt-polarity.{name}.gz").read_bytes()).decode("cp1252")
        rows += [(" ".join(line.split()), label) for line in text.split("\n") if line.strip()]
    random.Random(0).shuffle(rows)
    test, rest = rows[:TESTS], rows[TESTS:]
    tests = write_rows(test, folder / "labels-test.tsv")
    found = {}
    for n in sizes:
        path = write_rows(rest[:n], folder / f"labels-{n}.tsv")
        n_train = round(n * (1 - HELD_OUT))
        chars = mean(len(text) for text, _ in rest[:n])
        found[n] = (["--labels", str(path), "--test", str(tests)], old_texts(n_train, chars))
    return found


def write_rows(rows: list[tuple[str, str]], path: Path) -> Path:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def write_images(
    data: Path, folder: Path, sizes: list[int], n_tests: int | None = None
) -> dict[int, tuple[list[str], dict[str, object]]]:
    """Write nested .npz files of the first images of Fashion-MNIST, which is shuffled already."""

    def write(name: str, kind: str, n: int | None) -> Path:
        part = [read_idx(data / f"fashion-mnist/{kind}-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]
        path = folder / f"images-{name}.npz"
        np.savez(path, images=part[0][:n], labels=part[1][:n])
        return path

    tests = write("test", "t10k", n_tests)
    return {
        n: (["--images", str(write(str(n), "train", n)), "--test", str(tests)], old_images(round(n * (1 - HELD_OUT))))
        for n in sizes
    }


def accuracy(report: Path) -> float:
    return round(100 * json.loads(report.read_text())["test"]["accuracy"], 2)


def scaled(files: list[str], settings: dict[str, object], scale: float) -> dict[str, object]:
    """Return the settings with a fraction of the steps, which are those of the plan if the settings have none."""
    if scale == 1:
        return settings
    data = {name.removeprefix("--"): value for name, value in zip(files[::2], files[1::2])}
    steps = settings.get("train.steps") or clearformer.plan(**data, device="cpu").train.steps
    return settings | schedule(round(scale * int(str(steps))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", choices=SIZES, help="only one kind of data")
    parser.add_argument("--sizes", help="numbers of examples, comma-separated")
    parser.add_argument("--seeds", default="0,1", help="comma-separated list")
    parser.add_argument("--scale", type=float, default=1, help="fraction of the chosen steps")
    parser.add_argument("--tests", type=int, help="number of test images; all by default")
    parser.add_argument("--runs", type=Path, default=Path("runs/smooth-classes"))
    parser.add_argument("--out", type=Path, default=RESULTS / "smooth-classes.json")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result: dict[str, Any] = json.loads(args.out.read_text())["corpora"] if args.out.exists() else {}
    for kind in SIZES if args.only is None else [args.only]:
        sizes = [int(n) for n in args.sizes.split(",")] if args.sizes else list(SIZES[kind])
        corpora = (
            write_reviews(args.data, args.runs, sizes)
            if kind == "labels"
            else write_images(args.data, args.runs, sizes, args.tests)
        )
        for n, (files, old) in corpora.items():
            result[f"{kind}-{n}"] = compare(f"{kind}-{n}", files, old, args)
            write_result(result, args.out)


def compare(name: str, files: list[str], old: dict[str, object], args: argparse.Namespace) -> dict[str, Any]:
    """Train both arms on one corpus with every seed; return the test accuracies."""
    scores: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for arm in ARMS:
        settings = scaled(files, old if arm == "old" else {}, args.scale)
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        for seed in map(int, args.seeds.split(",")):
            folder = args.runs / f"{name}-{arm}-{seed}"
            scores[arm].append(accuracy(train(folder, [*files, *words, "--device", "cpu"], seed)))
    means = {arm: round(mean(values), 2) for arm, values in scores.items()}
    change = round(means["new"] - means["old"], 2)
    print(f"{name:<12} {means['old']:6.2f} {means['new']:6.2f} {change:+.2f}", flush=True)
    return {**means, "change": change, "scale": args.scale, "seeds": scores}


def write_result(corpora: dict[str, Any], path: Path) -> None:
    by_arm = {arm: round(mean(row[arm] for row in corpora.values()), 2) for arm in ARMS}
    lowest = min(row["change"] for row in corpora.values())
    summary = {"what": "test accuracy in per cent", "mean": by_arm, "lowest_change": lowest, "corpora": corpora}
    words = ["python", "benchmarks/smooth_classes.py", *sys.argv[1:]]
    record({**summary, **stamp(shlex.join(words))}, path)


if __name__ == "__main__":
    main()
