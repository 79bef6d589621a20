"""Zero configuration: a recipe chosen from the data, and every choice said aloud.

    vocabulary   grows with the corpus, so that a piece is seen often enough to be learnt
    model        small corpora get small models and much dropout; large ones the reverse
    batch        more tokens a step as the corpus grows
    length       so many passes over the data, fewer for larger corpora, with early stopping

The choices are made from the number of pairs and their mean length alone; the language does not matter.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearformer.checkpoint import RunFolder
from clearformer.data.sources import Tally
from clearformer.prepare import Shares, examples
from clearformer.recipe import Recipe, model_key, override
from clearformer.training.journal import console
from clearformer.training.precision import pick_device

# pairs up to: preset, vocabulary, dropout, tokens a side and step, passes over the data, peak learning rate
SIZES: list[tuple[float, str, int, float, int, int, float]] = [
    (2_000, "transformer-tiny", 1_000, 0.3, 1024, 150, 2e-3),
    (10_000, "transformer-tiny", 2_000, 0.3, 2048, 100, 3e-3),
    (60_000, "transformer-tiny", 8_000, 0.3, 4096, 60, 4e-3),
    (400_000, "transformer-small", 10_000, 0.2, 8192, 30, 2e-3),
    (4_000_000, "transformer-base", 20_000, 0.1, 16384, 15, 1e-3),
    (float("inf"), "transformer-base", 32_000, 0.1, 32768, 8, 1e-3),
]

PART = {True: 8192, False: 4096}  # tokens a side that are computed at once, on CUDA and elsewhere: memory bounds them


def plan(
    sources: Mapping[str, Mapping[str, Any]], model: str | None, settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe for these corpora ({"train": {"path": …}, …}); `settings` override what was chosen."""
    table: dict[str, Any] = {"data": {split: dict(source) for split, source in sources.items()}}
    named = {model_key(model): model} if model else {}
    asked = override(table | {"model": named}, settings)
    is_ours = not {"kind", "preset"} & asked["model"].keys()  # the size is for us to choose
    smallest = {"preset": SIZES[0][1]} if is_ours else named
    # Parsed once beforehand, so that a misspelt key is found before a large corpus is read.
    has_two = not asked.get("text", {}).get("shared", True)
    draft = Recipe.parse(override(table | {"model": smallest}, [*settings, "text.shared=true"]), "--set")
    n_pairs, n_chars = survey(draft)
    _, size, vocab, dropout, tokens, passes, lr = next(row for row in SIZES if n_pairs <= row[0])
    per_pair = max(4.0, n_chars / n_pairs / 4)  # about four characters a piece
    steps = int(max(500, round(passes * n_pairs * per_pair / (0.9 * tokens), -2)))
    every = int(max(50, min(1000, round(steps / 40, -1))))
    n_parts = max(1, tokens // PART[pick_device(device).type == "cuda"])
    fits = {"dropout": dropout, "share": "decoder" if has_two else "all"}  # if the model knows such keys
    fits = {key: value for key, value in fits.items() if key in type(draft.model).model_fields}
    table |= {
        # A vocabulary of the size that the user asks for is meant; one of our choice may come out smaller.
        "text": {"kind": "bpe", "vocab_size": vocab, "strict": "vocab_size" in asked.get("text", {})},
        "model": {**fits, **({"preset": size} if is_ours else named)},
        "optim": {"lr": lr},
        "schedule": {"warmup": min(4000, max(100, steps // 10))},
        "train": {
            "tokens": tokens // n_parts,
            "accumulation": n_parts,
            "steps": steps,
            "validate_every": every,
            "save_every": every,
            "log_every": min(50, every),
            "patience": 10,
        },
    }
    recipe = Recipe.parse(override(table, settings), "--set")
    per_step = recipe.train.tokens * recipe.train.accumulation
    passes = round(recipe.train.steps * 0.9 * per_step / (n_pairs * per_pair))
    dropout = getattr(recipe.model, "dropout", 0.0)
    console.print(
        f"{n_pairs:,} pairs of {n_chars / n_pairs:.0f} characters: {recipe.model.preset or recipe.model.kind}, "
        f"dropout {dropout:g}, {'one vocabulary' if recipe.text.shared else 'two vocabularies'} of at most "
        f"{recipe.text.vocab_size:,} {recipe.text.kind} pieces, {per_step:,} tokens a side and step, "
        f"{recipe.train.steps:,} steps (about {passes:,} passes), peak learning rate {recipe.optim.lr:g}, "
        f"on {pick_device(device)}",
    )
    return recipe


def survey(recipe: Recipe) -> tuple[int, int]:
    """Pairs, and characters of their targets, that are left after filtering."""
    n_pairs = n_chars = 0
    for example in examples(recipe, "train", Shares(), Tally()):
        n_pairs += 1
        n_chars += len(example.target)
    return n_pairs, n_chars


def plan_finetune(
    start: Path, sources: Mapping[str, Mapping[str, Any]], settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe of a trained model, with other data, a gentler rate, and as many passes as are good for so much."""
    old = Recipe.read(RunFolder(start).recipe)
    kept = ("text", "model", "decode", "evaluate", "objective")
    table: dict[str, Any] = {name: value for name, value in old.tables().items() if name in kept}
    table["data"] = {split: dict(source) for split, source in sources.items()} | {
        "filter": old.tables()["data"]["filter"]
    }
    n_pairs, n_chars = survey(Recipe.parse(override(table, settings), "--set"))
    tokens = min(old.train.tokens, 4096)
    steps = int(max(200, min(20_000, 10 * n_pairs * max(4.0, n_chars / n_pairs / 4) / tokens)))
    every = max(20, steps // 20)
    table |= {
        "optim": {**old.tables()["optim"], "lr": old.optim.lr / 10},
        "schedule": {"kind": "cosine", "warmup": min(100, steps // 10)},
        "train": {"tokens": tokens, "steps": steps, "validate_every": every, "save_every": every, "patience": 5},
    }
    recipe = Recipe.parse(override(table, settings), "--set")
    console.print(
        f"{n_pairs:,} pairs of {n_chars / n_pairs:.0f} characters: from {start}, {recipe.train.tokens:,} tokens a side "
        f"and step, {recipe.train.steps:,} steps, peak learning rate {recipe.optim.lr:g}, on {pick_device(device)}",
    )
    return recipe
