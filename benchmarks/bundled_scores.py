"""BLEU and chrF of the bundled model, in and out of its domain.

    python benchmarks/bundled_scores.py [--root FOLDER] [--out benchmarks/results/en-fr-small.json]

In domain: the English sentences that recipes/tatoeba-en-fr.toml holds out for the test, with all their translations;
`--root` is the folder of fra.txt.gz. Out of domain: forty captions, headlines, instructions and facts, written for this
purpose (benchmarks/data/out-of-domain.en-fr.tsv); with so small a sample, the result is only approximate.
"""

import argparse
from pathlib import Path

from provenance import RESULTS, record, stamp

from clearformer import evaluate, load
from clearformer.data.pairs import Tally, read_pairs
from clearformer.data.parallel import survey_pairs
from clearformer.data.split import place
from clearformer.evaluation.evaluate import evaluate as measure
from clearformer.loading.folder import DEFAULT, find
from clearformer.recipe import Recipe

HERE = Path(__file__).parent


def in_domain(root):
    settings = [f"data.root={root}"] if root else []
    recipe = Recipe.read(HERE.parent / "recipes" / "tatoeba-en-fr.toml", settings)
    fractions = survey_pairs(recipe.data).fractions(recipe.data)
    pairs = recipe.data.filter.keep(recipe.data.source("train").read(), Tally())
    return [pair for pair in pairs if fractions.split_of(place(pair.source)) == "test"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of fra.txt.gz; default: data.root of the recipe")
    parser.add_argument("--out", type=Path, default=RESULTS / "en-fr-small.json")
    arguments = parser.parse_args()
    translator = load(DEFAULT)
    result = {
        "what": "the bundled English→French model, beam 5, cased sacrebleu",
        "millions": round(sum(p.numel() for p in translator.model.parameters()) / 1e6, 1),
        "megabytes": round(sum(f.stat().st_size for f in find(DEFAULT).iterdir()) / 1e6, 1),
    }
    pairs = in_domain(arguments.root)
    out_of_domain = HERE / "data" / "out-of-domain.en-fr.tsv"
    scores = {
        "in_domain": measure(translator, [p.source for p in pairs], [[p.target for p in pairs]]),
        "out_of_domain": evaluate(DEFAULT, out_of_domain, device="cpu"),
    }
    for name, score in scores.items():
        keys = ("bleu", "chrf", "sentences", "signatures")
        result[name] = {k: round(score[k], 2) if isinstance(score[k], float) else score[k] for k in keys}
    for pair, translation in list(zip(read_pairs(out_of_domain), scores["out_of_domain"]["translations"]))[:10:2]:
        print(f"{pair.source}\n  → {translation}\n  = {pair.target}")
    record(result | stamp("python benchmarks/bundled_scores.py"), arguments.out)


if __name__ == "__main__":
    main()
