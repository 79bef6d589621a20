"""demo: train a translator on the bundled corpus, evaluate it, plot its attention, and translate.

The corpus is synthetic, which the demo says in its first line. It has three test sets of increasing difficulty:
sentences like the training data, combinations of words that do not occur in training, and relative clauses nested one
level deeper. The BLEU of a word-by-word dictionary is the baseline without grammar.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearformer.bundled.corpus import NOTICE, Pair, splits, word_by_word, write_corpus
from clearformer.errors import CheckpointError
from clearformer.evaluation.evaluate import EvaluateConfig, evaluate, translation_metrics
from clearformer.handles.translator import Translator
from clearformer.loading.folder import DEFAULT
from clearformer.recipe import Recipe
from clearformer.verbs.choices import Settings, as_strings
from clearformer.verbs.load import load_as
from clearformer.verbs.train import train

TESTS = {
    "test": "random split",
    "combinations": "unseen combinations",
    "deeper": "one relative clause deeper",
}
SENTENCES = ("I am a good boy.", "The cat eats the mouse.", "Where is the train station?")


def demo(
    out: Path | str | None = None, settings: Settings = (), seed: int = 0, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Run the demo in a run folder, runs/demo-<time> by default, and return its results as a dictionary.

    The keys are run, bleu, attention and seconds. `say` is called with each result as soon as it is available.
    """
    from clearformer.verbs.plot import plot  # before training, so that a missing matplotlib is reported at once

    out = Path(out or f"runs/demo-{time.strftime('%Y%m%d-%H%M%S')}")
    if out.exists():
        raise CheckpointError(f"{out} already exists", "choose another folder with --out")
    parts = splits(train=24_000, seed=seed)
    corpus = out / "corpus"
    write_corpus(parts, corpus)
    say(f"{NOTICE}\n  {parts['train'][0].english}  →  {parts['train'][0].hindi}")

    recipe = Path(str(files("clearformer") / "bundled" / "demo.toml"))
    report = train(Recipe.read(recipe, [f"data.root={corpus}", *as_strings(settings)]), out=out)
    scores = evaluate_tests(load_as(Translator, out), parts, Recipe.read(out / "recipe.toml").evaluate, say)

    english, hindi = parts["test"][0]
    figure = plot("attention", out / "attention.png", model=out, text=english, target=hindi)["figure"]
    say(f"attention: {figure}")
    for sentence, translation in zip(SENTENCES, load_as(Translator, DEFAULT).translate(SENTENCES)):
        say(f"{DEFAULT}: {sentence}  →  {translation}")
    return {"run": str(out), "bleu": scores, "attention": figure, "seconds": report["seconds"]}


def evaluate_tests(
    translator: Translator, parts: Mapping[str, Sequence[Pair]], config: EvaluateConfig, say: Callable[[str], None]
) -> dict[str, float]:
    """Compute BLEU on each test set, and the BLEU of the word-by-word dictionary on the first."""
    scores: dict[str, float] = {}
    for split, title in TESTS.items():
        sources, references = [pair.english for pair in parts[split]], [[pair.hindi for pair in parts[split]]]
        scores[split] = evaluate(translator, sources, references, config)["bleu"]
        if split == "test":
            baseline = [word_by_word(text) for text in sources]
            scores["dictionary"] = translation_metrics(baseline, references, config)["bleu"]
        say(f"BLEU {scores[split]:6.2f}  {title}")
    say(f"BLEU {scores['dictionary']:6.2f}  word-by-word dictionary, on the random split")
    return scores
