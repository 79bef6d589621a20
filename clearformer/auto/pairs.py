"""Zero configuration for pairs: a recipe chosen from the data, and every choice said aloud.

    vocabulary   grows with the corpus, so that a piece is seen often enough to be learnt
    model        small corpora get small models and much dropout; large ones the reverse
    batch        more tokens a step as the corpus grows
    length       so many passes over the data, fewer for larger corpora, with early stopping

The choices are made from the number of pairs and their mean length alone; the language does not matter.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearformer.auto.bounds import PART, in_words, refuse_others, steps_asked
from clearformer.auto.tuned import built_on, tuned_outline
from clearformer.data.sources import Tally
from clearformer.errors import ConfigError
from clearformer.loading.contents import read_recipe
from clearformer.prepare import Shares, examples
from clearformer.recipe import Recipe, model_key, override, task_of
from clearformer.training.journal import console
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, Method, rate_for

# pairs up to: preset, vocabulary, dropout, tokens a side and step, passes over the data, peak learning rate
SIZES: list[tuple[float, str, int, float, int, int, float]] = [
    (2_000, "transformer-tiny", 1_000, 0.3, 1024, 150, 2e-3),
    (10_000, "transformer-tiny", 4_000, 0.3, 2048, 100, 3e-3),
    (60_000, "transformer-tiny", 8_000, 0.3, 4096, 60, 4e-3),
    (400_000, "transformer-small", 10_000, 0.2, 8192, 30, 2e-3),
    (4_000_000, "transformer-base", 20_000, 0.1, 16384, 15, 1e-3),
    (float("inf"), "transformer-base", 32_000, 0.1, 32768, 8, 1e-3),
]

RNN_PAIRS = ("seq2seq", "bahdanau")  # names that say nothing of sizes
WIDTHS = {"transformer-tiny": (256, 256), "transformer-small": (512, 256), "transformer-base": (1000, 620)}


def plan_pairs(
    sources: Mapping[str, Mapping[str, Any]], model: str | None, settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe for these corpora ({"train": {"path": …}, …}); `settings` override what was chosen."""
    table: dict[str, Any] = {"data": {split: dict(source) for split, source in sources.items()}}
    named = {model_key(model): model} if model not in (None, "transformer") else {}  # whose size is for us to choose
    asked = override(table | {"model": named}, settings)
    refuse_others(asked["model"], "translation", "it is trained on --text, not on pairs")
    is_ours = not {"kind", "preset"} & asked["model"].keys()
    smallest = {"preset": SIZES[0][1]} if is_ours else named
    # Parsed once beforehand, so that a misspelt key is found before a large corpus is read.
    has_two = not asked.get("text", {}).get("shared", True)
    draft = Recipe.parse(override(table | {"model": smallest}, [*settings, "text.shared=true"]), "--set")
    n_pairs, n_chars = survey(draft)
    _, size, vocab, dropout, tokens, passes, lr = next(row for row in SIZES if n_pairs <= row[0])
    per_pair = max(4.0, n_chars / n_pairs / 4)  # about four characters a piece
    steps = int(max(2000, round(passes * n_pairs * per_pair / (0.9 * tokens), -2)))
    every = int(max(50, min(1000, round(steps / 40, -1))))
    n_parts = max(1, tokens // PART[pick_device(device).type == "cuda"])
    fits = {"dropout": dropout, "share": "decoder" if has_two else "all"}  # if the model knows such keys
    fits = {key: value for key, value in fits.items() if key in type(draft.model).model_fields}
    if model in RNN_PAIRS:  # about the size of the Transformer of this row, which bears another rate
        fits |= dict(zip(("d_model", "d_embedding"), WIDTHS[size]))
        lr = 1e-3
    table |= {
        # A vocabulary of the size that the user asks for is meant; one of our choice may come out smaller.
        "text": {"kind": "bpe", "vocab_size": vocab, "strict": "vocab_size" in asked.get("text", {})},
        "model": {**fits, **({"preset": size} if is_ours else named)},
        "optim": {"lr": lr},
        "schedule": {"warmup": min(4000, steps_asked(settings, steps) // 10)},
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
    done = recipe.train.steps * 0.9 * per_step / (n_pairs * per_pair)
    dropout = getattr(recipe.model, "dropout", 0.0)
    console.print(
        f"{n_pairs:,} pairs of {n_chars / n_pairs:.0f} characters: {recipe.model.preset or recipe.model.kind}, "
        f"dropout {dropout:g}, {'one vocabulary' if recipe.text.shared else 'two vocabularies'} of at most "
        f"{recipe.text.vocab_size:,} {recipe.text.kind} pieces, {per_step:,} tokens a side and step, "
        f"{recipe.train.steps:,} steps ({in_words(done)}), peak learning rate {recipe.optim.lr:g}, "
        f"on {pick_device(device)}",
    )
    return recipe


def plan_finetune_pairs(
    start: Path,
    sources: Mapping[str, Mapping[str, Any]],
    method: Method,
    settings: Sequence[str],
    device: str = "auto",
) -> Recipe:
    """The recipe of a trained model, with other data, a gentler rate, and as many passes as are good for so much."""
    old = read_recipe(start)
    if (task := task_of("model", old.model.kind)) != "translation":
        raise ConfigError(
            f"{start} is a model for {task}, not for translation",
            "start from a translator or a T5; a language model goes on with --text",
        )
    kept = ["text", "model", "decode", "evaluate", "origin"]
    data: dict[str, Any] = {"filter": {"max_tokens": min(256, getattr(old.model, "max_length", 257) - 1)}}
    if task_of("objective", old.objective.kind) == "translation":  # else it was pretrained on text
        kept.append("objective")
        data |= {} if old.data is None else {key: old.tables()["data"][key] for key in ("filter", "prefix")}
    table: dict[str, Any] = {name: value for name, value in old.tables().items() if name in kept}
    table["data"] = {split: dict(source) for split, source in sources.items()} | data
    if method != "full":
        table |= built_on(start, old, method)
    draft = Recipe.parse(override(table, settings), "--set")
    if draft.tuning is not None:
        tuned_outline(draft)
    n_pairs, n_chars = survey(draft)
    rate = old.optim.lr / 10 if method == "full" else rate_for(method, old.model.d_model)
    tokens = min(old.train.tokens, 4096)
    steps = int(max(200, min(20_000, 10 * n_pairs * max(4.0, n_chars / n_pairs / 4) / tokens)))
    every = max(20, steps // 20)
    table |= {
        "optim": {**old.tables()["optim"], "lr": rate},
        "schedule": {"kind": "cosine", "warmup": min(100, steps_asked(settings, steps) // 10)},
        "train": {"tokens": tokens, "steps": steps, "validate_every": every, "save_every": every, "patience": 5},
    }
    recipe = Recipe.parse(override(table, settings), "--set")
    console.print(
        f"{n_pairs:,} pairs of {n_chars / n_pairs:.0f} characters: {SAID[method]} from {start}, "
        f"{recipe.train.tokens:,} tokens a side and step, {recipe.train.steps:,} steps, "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(device)}",
    )
    return recipe


def survey(recipe: Recipe) -> tuple[int, int]:
    """Pairs, and characters of their targets, that are left after filtering."""
    n_pairs = n_chars = 0
    for example in examples(recipe, "train", Shares(), Tally()):
        n_pairs += 1
        n_chars += len(example.target)
    return n_pairs, n_chars
