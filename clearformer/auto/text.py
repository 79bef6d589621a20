"""Zero configuration for running text: a recipe chosen from how many characters there are, every choice said aloud.

tokens   letters of a short text, pieces of a long one
model    a GPT, or the kind that is asked for, which grows with the text where there is a GPU
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clearformer.auto.bounds import PART, in_words, refuse_others, steps_asked
from clearformer.recipe import Recipe, model_key, override, presets
from clearformer.training.journal import console
from clearformer.training.precision import pick_device

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
    n_chars = sum(len(document) for document in draft.data.read("train"))
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
