"""Zero configuration for running text: a recipe chosen from how many characters there are, every choice said aloud.

tokens   letters of a short text, pieces of a long one
model    a GPT, or the kind that is asked for, which grows with the text where there is a GPU

A trained model goes on with another text as it is: its tokens, its objective, its context.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearformer.auto.bounds import PART, in_words, refuse_others, steps_asked
from clearformer.auto.tuned import built_on, gentle, tuned_outline
from clearformer.data.corpora import TextCorpora
from clearformer.errors import ConfigError
from clearformer.loading.contents import read_recipe
from clearformer.recipe import Recipe, model_key, override, presets, task_of
from clearformer.registry import resolve
from clearformer.training.journal import console
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, Method, rate_for

# characters up to: layers, heads, width, context, dropout, tokens a step, passes over the data, peak learning rate
TEXTS: list[tuple[float, int, int, int, int, float, int, int, float]] = [
    (300_000, 4, 4, 128, 128, 0.2, 4096, 60, 2e-3),
    (5_000_000, 6, 6, 384, 256, 0.2, 16384, 60, 1e-3),
    (100_000_000, 8, 8, 512, 512, 0.1, 32768, 10, 1e-3),
    (float("inf"), 12, 12, 768, 1024, 0.0, 65536, 2, 6e-4),
]
MODEST = (4, 4, 128, 128, 0.1, 2048, 2, 2e-3)  # for a CPU: as much of a model as trains in minutes
LETTERS = 5_000_000  # characters below which a text is read letter by letter: too little to learn pieces from


# What text asks of the models that do not read it from left to right, and the special tokens that this takes.
OTHERS: dict[str, tuple[str, list[str]]] = {
    "bert": ("masked-lm", ["[MASK]"]),
    "t5": ("span-corruption", [f"<extra_id_{n}>" for n in range(100)]),
}
RECURRENT = ("rnn-lm", "lstm", "gru", "rnn")  # names that say nothing of sizes
REACH = 64  # tokens that a recurrent network's gradients go back through


def plan_text(
    sources: Mapping[str, Mapping[str, Any]], model: str | None, settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe for a language model on these files; `settings` override what was chosen."""
    table: dict[str, Any] = {"data": {split: dict(source) for split, source in sources.items()}}
    # A size that nobody asks for is for us to choose: --model gpt is a GPT, and not the one of 2018, a preset.
    named = {model_key(model): model} if model not in (None, "gpt") else {"kind": "gpt"}
    asked = override({"model": named}, settings)["model"]
    kind = str(asked.get("kind", presets().get(str(asked.get("preset")), {}).get("kind", "gpt")))
    objective, extra = OTHERS.get(kind, ("causal-lm", []))
    if kind not in OTHERS:
        refuse_others(asked, "causal-lm", "for running text choose a GPT, an LSTM, a BERT or a T5")
    table["objective"] = {"kind": objective}
    is_ours, recurs = model in (None, "gpt", *OTHERS, *RECURRENT), kind == "rnn-lm"
    smallest = {"n_heads": MODEST[1], "d_model": MODEST[2]} if is_ours and not recurs else {}
    draft = Recipe.parse(override(table | {"model": named | smallest}, settings), "--set")
    n_chars = survey(draft)
    where = pick_device(device)
    row = next(row for row in TEXTS if n_chars <= row[0])[1:] if where.type == "cuda" else MODEST
    layers, heads, width, context, dropout, tokens, passes, lr = row
    by_letter = n_chars <= LETTERS and kind not in OTHERS  # a hidden letter is too easy to guess
    n_tokens = n_chars if by_letter else n_chars / 4
    if recurs:
        table["data"]["length"] = REACH
        tokens = max(1, min(tokens, int(n_tokens / 10)) // REACH) * REACH  # each row goes on for ten steps at least
        lr *= 4
    steps = int(max(500, round(passes * n_tokens / tokens, -2)))
    every = int(max(50, min(1000, round(steps / 20, -1))))
    budget = steps_asked(settings, steps)
    warmup = min(1000, max(50, budget // 20), budget // 2)
    part = 2 * PART[where.type == "cuda"]
    n_parts = max(1, tokens // part)
    drop = {"dropout": dropout} if recurs else {"dropout": dropout, "attention_dropout": dropout}
    letters = {"kind": "char", "min_frequency": 1, "vocab_size": 1000}
    pieces = {"kind": "byte-bpe", "vocab_size": 8000, "strict": False}
    table |= {
        "text": {**(letters if by_letter else pieces), "whitespace": "collapse" if extra else "keep", "extra": extra},
        "model": {**drop, **named, **(sizes_of(kind, layers, heads, width, context) if is_ours else {})},
        "optim": {"kind": "adamw", "lr": lr, "betas": [0.9, 0.99], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup": warmup, "floor": 0.05},
        "train": {
            "tokens": tokens // n_parts,
            "accumulation": n_parts,
            "steps": steps,
            "validate_every": every,
            "save_every": every,
            "log_every": min(50, every),
            "patience": 10,
            "ema": 0.99,
        },
    }
    recipe = Recipe.parse(override(table, settings), "--set")
    per_step = recipe.train.tokens * recipe.train.accumulation
    console.print(
        f"{n_chars:,} characters of training text: {recipe.model.preset or recipe.model.kind} of "
        f"{layers_of(recipe.model)} layers and width {recipe.model.d_model}, "
        f"{recipe.data.length or recipe.model.max_length:,} tokens at a time, "
        f"{recipe.text.kind} tokens, {per_step:,} of them a step, {recipe.train.steps:,} steps "
        f"({in_words(recipe.train.steps * per_step / n_tokens)}), peak learning rate "
        f"{recipe.optim.lr:g}, on {where}"
    )
    return recipe


# tokens up to: passes over them by a model that has read another text before
PASSES: list[tuple[float, int]] = [(300_000, 10), (3_000_000, 3), (float("inf"), 1)]
READ = 1024  # tokens that a model from elsewhere is shown at a time, if it does not read less


def plan_finetune_text(
    start: Path,
    sources: Mapping[str, Mapping[str, Any]],
    method: Method,
    settings: Sequence[str],
    device: str = "auto",
) -> Recipe:
    """The recipe of a trained model, with another text, a gentler rate, and as many passes as are good for so much."""
    old = read_recipe(start)
    tables, is_ours = old.tables(), old.data is not None
    if not is_ours and old.model.kind in OTHERS:  # what it was pretrained by, which its folder does not say
        tables["objective"] = {"kind": OTHERS[old.model.kind][0]}
    objective = task_of("objective", tables["objective"]["kind"])
    if not issubclass(resolve("data", objective), TextCorpora):
        raise ConfigError(
            f"{start} is a model for {objective}, not for running text",
            "start from a GPT, an LSTM, a BERT or a T5; a translator goes on with --pairs",
        )
    if method == "head":
        raise ConfigError("a language model has no head to begin anew", "choose full, lora or prefix")
    kept = ("text", "model", "objective", "decode", "evaluate", "origin")
    table: dict[str, Any] = {name: tables[name] for name in kept if name in tables}
    if objective == "masked-lm" and not getattr(old.model, "word_head", True):
        if method != "full":
            raise ConfigError(f"{start} has no head that says words, and a new one must learn", "choose --method full")
        table["model"] |= {"word_head": True}
    # How texts are read goes with the weights; which are read does not.
    read = tables["data"] if is_ours else {"length": min(READ, old.model.max_length), "train": {}}
    table["data"] = {key: read[key] for key in ("length", "joined", "sentences") if key in read}
    cut = {key: read["train"][key] for key in ("column", "documents") if key in read["train"]}
    table["data"] |= {split: {**cut, **source} for split, source in sources.items()}
    if method != "full":
        table |= built_on(start, old, method)
    draft = Recipe.parse(override(table, settings), "--set")
    if draft.tuning is not None:
        tuned_outline(draft)
    n_chars = survey(draft)
    n_tokens = n_chars if old.text.kind == "char" else n_chars / 4
    passes = next(row for row in PASSES if n_tokens <= row[0])[1]
    # About ten steps a pass at least, though no less than a row each.
    tokens = min(old.train.tokens, max(draft.data.length or draft.model.max_length, int(n_tokens / 10)))
    steps = int(max(50, round(passes * n_tokens / tokens, -1)))
    table |= gentle(rate_for(method, old.model.d_model), tokens, steps, 15, settings)
    if is_ours and method == "full" and old.tuning is None:  # else its rate was that of an adapter
        table["optim"] = tables["optim"] | {"lr": old.optim.lr / 3}
    recipe = Recipe.parse(override(table, settings), "--set")
    per_step = recipe.train.tokens * recipe.train.accumulation
    console.print(
        f"{n_chars:,} characters of training text: {SAID[method]} from {start}, {per_step:,} tokens a step, "
        f"{recipe.train.steps:,} steps ({in_words(recipe.train.steps * per_step / n_tokens)}), "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(device)}"
    )
    return recipe


def survey(recipe: Recipe) -> int:
    """Characters of the training text."""
    return sum(len(document) for document in recipe.data.read("train"))


def sizes_of(kind: str, layers: int, heads: int, width: int, context: int) -> dict[str, Any]:
    """A row of TEXTS as the fields of each kind of model."""
    if kind == "rnn-lm":
        return {"n_layers": 2, "d_model": 2 * width}  # about as many parameters as the GPT of this row
    sizes = {"n_heads": heads, "d_model": width, "d_ff": 4 * width, "max_length": context}
    if kind == "t5":
        return sizes | {"n_encoder_layers": layers, "n_decoder_layers": layers}
    return sizes | {"n_layers": layers} | ({} if kind in OTHERS else {"bias": False})


def layers_of(model: Any) -> int:
    """Of one stack: an encoder and decoder of the same recipe may have two."""
    return int(model.n_layers if hasattr(model, "n_layers") else model.n_encoder_layers)
