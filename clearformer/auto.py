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
from clearformer.prepare import examples
from clearformer.recipe import Recipe, override
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


def plan(
    sources: Mapping[str, Mapping[str, Any]], model: str | None, settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe for these corpora ({"train": {"path": …}, …}); `settings` override what was chosen."""
    table: dict[str, Any] = {"data": {split: dict(source) for split, source in sources.items()}}
    n_pairs, n_chars = survey(Recipe.parse(override(table, settings), "--set"))
    _, size, vocab, dropout, tokens, passes, lr = next(row for row in SIZES if n_pairs <= row[0])
    per_pair = max(4.0, n_chars / n_pairs / 4)  # about four characters a piece
    steps = max(500, round(passes * n_pairs * per_pair / (0.9 * tokens), -2))
    every = max(50, min(1000, round(steps / 40, -1)))
    table |= {
        "text": {"kind": "bpe", "vocab_size": vocab, "strict": False},
        "model": {"preset": model or size, "dropout": dropout},
        "optim": {"lr": lr},
        "schedule": {"warmup": int(min(4000, max(100, steps // 10)))},
        "train": {
            "tokens": tokens,
            "steps": int(steps),
            "validate_every": int(every),
            "save_every": int(every),
            "log_every": int(min(50, every)),
            "patience": 10,
        },
    }
    console.print(
        f"{n_pairs:,} pairs of {n_chars / n_pairs:.0f} characters: {model or size}, dropout {dropout}, "
        f"a shared vocabulary of at most {vocab:,} BPE pieces, {tokens:,} tokens a side and step, {int(steps):,} steps "
        f"(about {passes} passes), peak learning rate {lr:g}, on {pick_device(device)}"
    )
    return Recipe.parse(override(table, settings), "--set")


def survey(recipe: Recipe) -> tuple[int, int]:
    """Pairs, and characters of their targets, that are left after filtering."""
    n_pairs = n_chars = 0
    for example in examples(recipe, "train", 0.0, Tally()):
        n_pairs += 1
        n_chars += len(example.target)
    return n_pairs, n_chars


def plan_finetune(
    start: Path, sources: Mapping[str, Mapping[str, Any]], settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe of a trained model, with other data, a gentler rate, and as many passes as are good for so much."""
    old = Recipe.read(RunFolder(start).recipe)
    table: dict[str, Any] = {"data": {split: dict(source) for split, source in sources.items()}}
    n_pairs, n_chars = survey(Recipe.parse(table, "--pairs"))
    tokens = min(old.train.tokens, 4096)
    steps = int(max(200, min(20_000, 10 * n_pairs * max(4.0, n_chars / n_pairs / 4) / tokens)))
    kept = {
        name: getattr(old, name).model_dump(mode="json", exclude_none=True)
        for name in ("text", "model", "decode", "evaluate", "objective")
    }
    table |= kept | {
        "optim": {"lr": old.optim.lr / 10},
        "schedule": {"kind": "cosine", "warmup": min(100, steps // 10)},
        "train": {
            "tokens": tokens,
            "steps": steps,
            "validate_every": max(20, steps // 20),
            "save_every": max(20, steps // 20),
            "patience": 5,
        },
    }
    console.print(
        f"{n_pairs:,} pairs: {steps:,} steps of {tokens:,} tokens a side, peak learning rate {old.optim.lr / 10:g}"
    )
    return Recipe.parse(override(table, settings), "--set")
