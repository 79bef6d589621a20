"""The first minutes: train a translator on the bundled corpus, score it, draw its attention, and translate.

The corpus is synthetic and says so. Three tests ask for more and more: sentences like those trained on, words in
combinations never trained on, and relative clauses nested one deeper; a word-by-word dictionary shows what
translating without grammar is worth.
"""

import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearformer.bundled.corpus import NOTICE, Pair, splits, word_by_word
from clearformer.errors import CheckpointError
from clearformer.evaluation.evaluate import evaluate, score
from clearformer.handles.translator import Translator
from clearformer.launch import train
from clearformer.loading.folders import DEFAULT
from clearformer.loading.handles import load_as
from clearformer.recipe import Recipe

TESTS = {
    "test": "random split",
    "combinations": "unseen combinations",
    "deeper": "one relative clause deeper",
}
SENTENCES = ("I am a good boy.", "The cat eats the mouse.", "Where is the train station?")


def demo(
    out: Path | str | None = None, settings: Sequence[str] = (), seed: int = 0, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Everything above, into a run folder; returns the scores. `say` is told each result as it comes."""
    from clearformer.figures import plot  # where matplotlib is missing, this says so before anything is trained

    out = Path(out or f"runs/demo-{time.strftime('%Y%m%d-%H%M%S')}")
    if out.exists():
        raise CheckpointError(f"{out} is there already", "choose another --out")
    parts = splits(train=24_000, seed=seed)
    corpus = out / "corpus"
    write_corpus(parts, corpus)
    say(f"{NOTICE}\n  {parts['train'][0].english}  →  {parts['train'][0].hindi}")

    recipe = Path(str(files("clearformer") / "bundled" / "demo.toml"))
    report = train(Recipe.read(recipe, [f"data.root={corpus}", *settings]), out)
    translator = load_as(Translator, out)
    chosen = Recipe.read(out / "recipe.toml").evaluate
    scores: dict[str, float] = {}
    for split, title in TESTS.items():
        sources, references = [pair.english for pair in parts[split]], [[pair.hindi for pair in parts[split]]]
        scores[split] = evaluate(translator, sources, references, chosen)["bleu"]
        if split == "test":
            scores["dictionary"] = score([word_by_word(text) for text in sources], references, chosen)["bleu"]
        say(f"BLEU {scores[split]:6.2f}  {title}")
    say(f"BLEU {scores['dictionary']:6.2f}  word-by-word dictionary, on the random split")

    english, hindi = parts["test"][0]
    picture = plot("attention", out / "attention.png", model=out, text=english, target=hindi)["picture"]
    say(f"attention: {picture}")
    pretrained = load_as(Translator, DEFAULT)
    for sentence, translation in zip(SENTENCES, pretrained.translate(SENTENCES)):
        say(f"{DEFAULT}: {sentence}  →  {translation}")
    return {"run": str(out), "bleu": scores, "attention": picture, "seconds": report["seconds"]}


def write_corpus(parts: dict[str, list[Pair]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in parts.items():
        lines = "".join(f"{pair.english}\t{pair.hindi}\n" for pair in pairs)
        (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")
