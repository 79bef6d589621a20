"""The bundled language model: train it with several seeds, measure each, and store the best in the package.

    python benchmarks/bundled_language_model.py --root FOLDER [--seeds 1,2,3] [--at-once 1] [--bundle]

FOLDER has english.txt; recipes/tatoeba-en.toml says how to create it. The run folders are runs/tatoeba-en-SEED;
unfinished runs are resumed, and finished runs are only read. Recorded for each seed and for the weights in the package:

    perplexity            by token of the test sentences, which do not occur in training, and of their ends
    pulled_over_pooled    log p(The man pulled a cart) − log p(The man pooled a cart), in nats
    fill, repair          the five best answers to "The man ___ a cart" and to "The man the cart"

--bundle rounds the weights of the seed with the lowest validation loss to float16 and stores them in the package. The
other measurements have no part in the choice.
"""

import argparse
import shutil
from concurrent.futures import ThreadPoolExecutor
from math import exp, log
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import torch
from provenance import RESULTS, record, stamp
from quality import row, train

import clearformer
from clearformer.checkpoint import RunFolder
from clearformer.handles.language_model import LanguageModel
from clearformer.loading.folder import LANGUAGE_MODEL, find, read_run
from clearformer.loading.write import write_run
from clearformer.recipe import Recipe

RECIPE = Path(__file__).parent.parent / "recipes" / "tatoeba-en.toml"
PAIR = ["The man pulled a cart", "The man pooled a cart"]
BLANK, GAP = "The man ___ a cart", "The man the cart"
STORED = ("model.safetensors", "recipe.toml", "tokenizer.json")


def margin(model: LanguageModel) -> float:
    pulled, pooled = model.score(PAIR)
    return round(pulled.logprob - pooled.logprob, 4)


def answers(model: LanguageModel) -> dict[str, list[dict[str, str | float]]]:
    """The five best words for the blank, and the five best repairs, each with its probability among all considered."""
    fillings, repairs = model.fill(BLANK), model.repair(GAP)
    return {
        name: [{"text": one.text, "probability": round(one.probability, 4)} for one in some]
        for name, some in (("fill", fillings), ("repair", repairs))
    }


def test_sentences(root: Path) -> tuple[list[str], list[str]]:
    """The test sentences, and those of them whose letters and digits are not the ones of a training sentence."""

    def letters(sentence: str) -> str:
        return "".join(filter(str.isalnum, sentence.lower()))

    data = Recipe.read(RECIPE, [f"data.root={root}"]).data
    known = {letters(sentence) for sentence in data.read("train")}
    sentences = list(data.read("test"))
    return sentences, [sentence for sentence in sentences if letters(sentence) not in known]


def held_out(model: LanguageModel, sentences: list[str]) -> dict[str, float]:
    """The perplexity by token and by word, with the end of each sentence, and bits by character, with its line end."""
    scores = model.score(sentences)
    nats, n_tokens = -sum(score.logprob for score in scores), sum(score.tokens for score in scores)
    n_words = sum(len(sentence.split()) + 1 for sentence in sentences)
    n_characters = sum(len(sentence) + 1 for sentence in sentences)
    return {
        "sentences": len(sentences),
        "tokens": n_tokens,
        "perplexity": round(exp(nats / n_tokens), 2),
        "word_perplexity": round(exp(nats / n_words), 2),
        "bits_per_character": round(nats / log(2) / n_characters, 3),
    }


def bundle(run: Path, package: Path) -> None:
    """Store the weights of a run in float16, with its recipe, in which data.root is the one of recipes/."""
    recipe, weights, tokenizers = read_run(RunFolder(run))
    recipe = recipe.with_tables(data=recipe.data.changed(root=Recipe.read(RECIPE).data.root))
    halves = {name: tensor.to(torch.float16) for name, tensor in weights.items()}
    with TemporaryDirectory() as folder:
        write_run(Path(folder), recipe, halves, tokenizers)
        package.mkdir(exist_ok=True)
        for name in STORED:
            shutil.copyfile(Path(folder) / name, package / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of english.txt")
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs at the same time")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--bundle", action="store_true", help="store the best on validation data in the package")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{LANGUAGE_MODEL}.json")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    runs = {seed: args.runs / f"tatoeba-en-{seed}" for seed in seeds}
    settings = [str(RECIPE), "--device", "cpu", "--set", f"data.root={args.root.resolve()}"]
    with ThreadPoolExecutor(args.at_once) as pool:
        reports = list(pool.map(lambda seed: train(runs[seed], settings, seed), seeds))
    if missing := [str(report) for report in reports if not report.exists()]:
        raise SystemExit(f"unfinished runs: {', '.join(missing)}; see the .log file of each, then repeat this command")

    sentences, unlike = test_sentences(args.root)
    rows = []
    for seed, report in zip(seeds, reports):
        model = clearformer.load(runs[seed])
        measured = {**held_out(model, sentences), "pulled_over_pooled": margin(model), **answers(model)}
        trained = row(report, seed)
        rows.append(
            {"seed": seed, "validation_loss": trained["valid"]["loss"], "seconds": trained["seconds"], **measured}
        )
    chosen = min(rows, key=lambda one: one["validation_loss"])["seed"]
    if args.bundle:
        bundle(runs[chosen], Path(clearformer.__file__).parent / "bundled" / "models" / LANGUAGE_MODEL)
    model, folder = clearformer.load(LANGUAGE_MODEL), find(LANGUAGE_MODEL)
    margins = [one["pulled_over_pooled"] for one in rows]
    result = {
        "what": "the bundled English language model: the seeds of its recipe, and the weights in the package (float16)",
        "millions": round(sum(p.numel() for p in model.model.parameters()) / 1e6, 1),
        "megabytes": round(sum((folder / name).stat().st_size for name in STORED) / 1e6, 1),
        "seeds": rows,
        "mean": {"perplexity": round(mean(one["perplexity"] for one in rows), 2), "pulled_over_pooled": mean(margins)},
        "least_margin": min(margins),
        "bundled_seed": chosen,
        "bundled": {**held_out(model, sentences), "pulled_over_pooled": margin(model), **answers(model)},
        "unlike_training": held_out(model, unlike),
    }
    record(result | stamp("python benchmarks/bundled_language_model.py --root FOLDER"), args.out)


if __name__ == "__main__":
    main()
