"""Zero configuration of classifiers by a table, as it was in version 0.1, and by smooth functions, side by side.

    python benchmarks/smooth_classes.py [--data FOLDER] [--only labels] [--sizes 1000,2000]

Test accuracy of `clearformer train --labels FILE` on 1,000 to 9,000 film reviews (rt-polarity; 1,066 others are test
data), and of `clearformer train --images FILE` on 1,000 to 5,000 images (Fashion-MNIST with its test data), on a CPU.
`old` gets the settings of the former table with --set, `new` gets nothing but the seed; two seeds each. The corpora are
nested. Finished runs are only read: repeat the command if it was interrupted.
"""

import argparse
import gzip
import json
import os
import random
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from provenance import RESULTS, record, stamp
from quality import train

from clearformer.data.files.arrays import read_idx

SIZES = {"labels": (1_000, 2_000, 5_000, 9_000), "images": (1_000, 2_000, 5_000)}
ARMS, SEEDS = ("old", "new"), (0, 1)
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


def write_images(data: Path, folder: Path, sizes: list[int]) -> dict[int, tuple[list[str], dict[str, object]]]:
    """Write nested .npz files of the first images of Fashion-MNIST, which is shuffled already."""

    def write(name: str, kind: str, n: int | None) -> Path:
        part = [read_idx(data / f"fashion-mnist/{kind}-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]
        path = folder / f"images-{name}.npz"
        np.savez(path, images=part[0][:n], labels=part[1][:n])
        return path

    tests = write("test", "t10k", None)
    return {
        n: (["--images", str(write(str(n), "train", n)), "--test", str(tests)], old_images(round(n * (1 - HELD_OUT))))
        for n in sizes
    }


def accuracy(report: Path) -> float:
    return round(100 * json.loads(report.read_text())["test"]["accuracy"], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", choices=SIZES, help="only one kind of data")
    parser.add_argument("--sizes", help="numbers of examples, comma-separated")
    parser.add_argument("--runs", type=Path, default=Path("runs/smooth-classes"))
    parser.add_argument("--out", type=Path, default=RESULTS / "smooth-classes.json")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result: dict[str, Any] = json.loads(args.out.read_text())["corpora"] if args.out.exists() else {}
    for kind, write in {"labels": write_reviews, "images": write_images}.items():
        if args.only not in (None, kind):
            continue
        sizes = [int(n) for n in args.sizes.split(",")] if args.sizes else list(SIZES[kind])
        for n, (files, old) in write(args.data, args.runs, sizes).items():
            scores: dict[str, list[float]] = {arm: [] for arm in ARMS}
            for arm in ARMS:
                settings = old if arm == "old" else {}
                words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
                for seed in SEEDS:
                    folder = args.runs / f"{kind}-{n}-{arm}-{seed}"
                    scores[arm].append(accuracy(train(folder, [*files, *words, "--device", "cpu"], seed)))
            means = {arm: round(mean(values), 2) for arm, values in scores.items()}
            change = round(means["new"] - means["old"], 2)
            result[f"{kind}-{n}"] = {**means, "change": change, "seeds": scores}
            print(f"{kind}-{n:<6} {means['old']:6.2f} {means['new']:6.2f} {change:+.2f}", flush=True)
            by_arm = {arm: round(mean(row[arm] for row in result.values()), 2) for arm in ARMS}
            lowest = min(row["change"] for row in result.values())
            summary = {"what": "test accuracy in per cent", "mean": by_arm, "lowest_change": lowest, "corpora": result}
            record({**summary, **stamp("python benchmarks/smooth_classes.py")}, args.out)


if __name__ == "__main__":
    main()
