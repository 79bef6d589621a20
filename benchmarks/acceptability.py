"""How well a sentence scorer trained without labels agrees with linguists, on CoLA (Warstadt et al. 2019).

    python benchmarks/acceptability.py --model runs/scorer [--data FOLDER]

A sentence counts as acceptable if its score is above a threshold, which is the only value chosen with labels: the
threshold with the best Matthews correlation on CoLA's training set. The correlation on the development set is reported
with a 95 % interval from 10,000 bootstrap samples, together with the fraction of all pairs of an acceptable and an
unacceptable sentence that are ranked correctly.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.checkpoint import RunFolder
from clearformer.data.sources import read_lines

PAIR = ["The man pulled a cart.", "The man pooled a cart."]


def read(path: Path) -> tuple[list[str], np.ndarray]:
    rows = [line.split("\t") for line in read_lines(path)]
    return [row[3] for row in rows], np.array([row[1] == "1" for row in rows])


def matthews(predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Matthews correlation along the last dimension; zero where all values of one argument are equal."""
    spread = predicted.std(-1) * actual.std(-1)
    product = (predicted & actual).mean(-1) - predicted.mean(-1) * actual.mean(-1)
    return np.where(spread > 0, product / np.where(spread > 0, spread, 1), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "sentence-scorer.json")
    args = parser.parse_args()
    scorer = clearformer.load(args.model, device=args.device)

    def score(texts: list[str]) -> np.ndarray:
        return np.array([result.logprob for result in scorer.score(texts)])

    texts, good = read(args.data / "glue/CoLA/train.tsv.gz")
    scores = score(texts)
    thresholds = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    threshold = thresholds[np.argmax(matthews(scores > thresholds[:, None], np.broadcast_to(good, (99, len(good)))))]
    texts, good = read(args.data / "glue/CoLA/dev.tsv.gz")
    scores = score(texts)
    samples = np.random.default_rng(0).integers(len(good), size=(10_000, len(good)))
    interval = np.quantile(matthews((scores > threshold)[samples], good[samples]), [0.025, 0.975])
    report = json.loads(RunFolder(args.model).report.read_text())
    pair = score(PAIR)
    result = {
        "what": "a sentence scorer trained without labels, on CoLA's development set",
        "matthews": round(float(matthews(scores > threshold, good)), 4),
        "interval": [round(float(edge), 4) for edge in interval],
        "ranked_aright": round(float((scores[good][:, None] > scores[~good]).mean()), 4),
        "sentences": len(good),
        "pulled_over_pooled": round(float(pair[0] - pair[1]), 4),
        "own_test_accuracy": round(report["test"]["accuracy"], 4),
        "seed": report["seed"],
        "seconds": report["seconds"],
    }
    record(result | stamp("python benchmarks/acceptability.py --model RUN"), args.out)


if __name__ == "__main__":
    main()
