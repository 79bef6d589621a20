"""The sentence scorer of the course notes on recurrent networks: tanh and σ, one way and both ways, one layer and two.

    python benchmarks/sentence_scorers.py [--data FOLDER] [--seeds 1,2,3]

recipes/rnn-sentence-scorer.toml on the English side of Tatoeba's sentence pairs, each sentence once, in an order
that is shuffled by a fixed seed. The run folders are runs/sentence-scorer-NETWORK-SEED; finished ones are only read.
For each network and seed:

    accuracy              on test sentences, half of which got a word replaced or removed; guessing has 0.5
    pulled_over_pooled    log p(The man pulled a cart) − log p(The man pooled a cart), in nats
    fill                  the place of *pulled* among the words of VERBS in "The man ___ a cart"

`unknown` are the words of the two sentences that the vocabulary of the recipe does not have.
"""

import argparse
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from provenance import RESULTS, record, stamp
from quality import train

import clearformer
from clearformer.checkpoint import RunFolder
from clearformer.handles.sentence_scorer import SentenceScorer

RECIPE = Path(__file__).parent.parent / "recipes" / "rnn-sentence-scorer.toml"
PAIR = ("The man pulled a cart", "The man pooled a cart")
VERBS = ("pulled", "asked", "slept", "laughed", "thought", "arrived", "smiled", "agreed", "lived", "waited")
BOTH = ("model.base.kind=birnn", "model.pooling=ends", "model.base.d_embedding=128")
NETWORKS: dict[str, tuple[str, ...]] = {
    "tanh": (),
    "sigmoid": ("model.base.cell=rnn-sigmoid",),
    "both ways": BOTH,
    "two layers": ("model.base.n_layers=2",),
}


def write_sentences(file: Path, out: Path) -> Path:
    """Write each English sentence of a file of pairs on a line, shuffled."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        sentences = sorted({line.split("\t")[0] for line in lines})
    random.Random(0).shuffle(sentences)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    return out


def place(scorer: SentenceScorer, word: str, others: Sequence[str]) -> int:
    """Return the place of a word among others in "The man ___ a cart": 1 is the best."""
    filled = scorer.weigh("The man ", " a cart", others)
    return 1 + [one for one, _ in filled].index(word)


def measure(run: RunFolder) -> dict[str, Any]:
    scorer = clearformer.load(run.path, device="cpu")
    report = json.loads(run.report.read_text(encoding="utf-8"))
    pulled, pooled = scorer.score(list(PAIR))
    return {
        "accuracy": round(report["test"]["accuracy"], 4),
        "pulled_over_pooled": round(pulled.logprob - pooled.logprob, 4),
        "fill": place(scorer, "pulled", VERBS),
        "steps": report["steps"],
        "parameters": report["parameters"],
    }


def unknown_words(run: RunFolder) -> list[str]:
    tokenizer = clearformer.load(run.path, device="cpu").tokenizer
    unknown = tokenizer.id_of("<unk>")
    words = sorted({word for sentence in PAIR for word in sentence.split()})
    return [word for word, ids in zip(words, tokenizer.encode(words)) if unknown in ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=RESULTS / "rnn-sentence-scorers.json")
    args = parser.parse_args()
    provenance = stamp("python benchmarks/sentence_scorers.py")
    text = write_sentences(args.data / "tatoeba-eng-fra/fra.txt.gz", args.runs / "english.txt")
    common = [f"data.train.path={text.resolve()}", "data.held_out_test=0.05"]
    seeds = [int(seed) for seed in args.seeds.split(",")]
    by_seed: dict[str, list[dict[str, Any]]] = {name: [] for name in NETWORKS}
    run = RunFolder(args.runs)
    for seed in seeds:
        for name, settings in NETWORKS.items():
            run = RunFolder(args.runs / f"sentence-scorer-{name.replace(' ', '-')}-{seed}")
            options = [word for setting in (*common, *settings) for word in ("--set", setting)]
            if not train(run.path, [str(RECIPE), "--device", "cpu", *options], seed).exists():
                raise SystemExit(f"{run.path} is unfinished; see {run.path}.log, then repeat this command")
            by_seed[name].append(measure(run))
    networks = {
        name: {
            "accuracy": round(fmean(row["accuracy"] for row in rows), 4),
            "least_accuracy": min(row["accuracy"] for row in rows),
            "least_margin": min(row["pulled_over_pooled"] for row in rows),
            "largest_margin": max(row["pulled_over_pooled"] for row in rows),
            "seeds": rows,
        }
        for name, rows in by_seed.items()
    }
    result = {
        "what": "the sentence scorer of the notes on recurrent networks, trained without labels",
        "seeds": seeds,
        "unknown": unknown_words(run),
        "networks": networks,
    }
    record({**result, **provenance}, args.out)


if __name__ == "__main__":
    main()
