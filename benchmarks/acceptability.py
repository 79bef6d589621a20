"""How a judge of sentences that never saw a label agrees with linguists, on CoLA (Warstadt et al. 2019).

    python benchmarks/acceptability.py --model runs/scorer [--data FOLDER]

A sentence is taken for English where its score is above a threshold, the one number that labels decide: that with the
best Matthews correlation on CoLA's training part. The correlation on the development part comes with a 95 % interval,
from 10,000 bootstrap samples. Beside it: the share of all pairs of a good and a bad sentence that are ranked aright.
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


def matthews(said: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Along the last dimension; zero where one of the answers is never given."""
    spread = said.std(-1) * right.std(-1)
    product = (said & right).mean(-1) - said.mean(-1) * right.mean(-1)
    return np.where(spread > 0, product / np.where(spread > 0, spread, 1), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "sentence-scorer.json")
    given = parser.parse_args()
    scorer = clearformer.load(given.model, device=given.device)

    def score(texts: list[str]) -> np.ndarray:
        return np.array([found.logprob for found in scorer.score(texts)])

    texts, good = read(given.data / "glue/CoLA/train.tsv.gz")
    scores = score(texts)
    cuts = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    cut = cuts[np.argmax(matthews(scores > cuts[:, None], np.broadcast_to(good, (99, len(good)))))]
    texts, good = read(given.data / "glue/CoLA/dev.tsv.gz")
    scores = score(texts)
    drawn = np.random.default_rng(0).integers(len(good), size=(10_000, len(good)))
    interval = np.quantile(matthews((scores > cut)[drawn], good[drawn]), [0.025, 0.975])
    report = json.loads(RunFolder(given.model).report.read_text())
    pair = score(PAIR)
    result = {
        "what": "a judge of sentences trained without labels, on CoLA's development part",
        "matthews": round(float(matthews(scores > cut, good)), 4),
        "interval": [round(float(edge), 4) for edge in interval],
        "ranked_aright": round(float((scores[good][:, None] > scores[~good]).mean()), 4),
        "sentences": len(good),
        "pulled_over_pooled": round(float(pair[0] - pair[1]), 4),
        "own_test_accuracy": round(report["test"]["accuracy"], 4),
        "seed": report["seed"],
        "seconds": report["seconds"],
    }
    record(result | stamp("python benchmarks/acceptability.py --model RUN"), given.out)


if __name__ == "__main__":
    main()
