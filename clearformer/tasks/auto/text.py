"""Zero configuration for running text: a recipe chosen from how many characters there are, every choice said aloud.

    tokens   characters of a short text, pieces of a long one
    model    a GPT, or the kind that is asked for, which grows with the text where there is a GPU

A trained model goes on with another text as it is: its tokens, its objective, its context.
"""

from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.corpora import TextCorpora
from clearformer.errors import ConfigError
from clearformer.models.build import model_key, preset_name, presets
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.auto.common import (
    PART,
    gentle_training,
    in_passes,
    refuse_other_models,
    tunable_outline,
    tuning_tables,
)
from clearformer.tasks.task import Plan, Request
from clearformer.training.journal import console
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, rate_for


class Size(NamedTuple):
    """How a model is built and trained: context and tokens in tokens, passes over the training text."""

    layers: int
    heads: int
    width: int
    context: int
    dropout: float
    tokens: int
    passes: int
    lr: float


# characters up to: layers, heads, width, context, dropout, tokens a step, passes over the data, peak learning rate
SIZES: list[tuple[float, Size]] = [
    (300_000, Size(4, 4, 128, 128, 0.2, 4096, 60, 2e-3)),
    (5_000_000, Size(6, 6, 384, 256, 0.2, 16384, 60, 1e-3)),
    (100_000_000, Size(8, 8, 512, 512, 0.1, 32768, 10, 1e-3)),
    (float("inf"), Size(12, 12, 768, 1024, 0.0, 65536, 2, 6e-4)),
]
MODEST = Size(4, 4, 128, 128, 0.1, 2048, 2, 2e-3)  # for a CPU: as large a model as trains in minutes
BY_CHARACTER = 5_000_000  # characters up to which a text is read one by one: too little to learn pieces from

# The objectives of models that do not read text from left to right, and the special tokens that these need.
OTHERS: dict[str, tuple[str, list[str]]] = {
    "bert": ("masked-lm", ["[MASK]"]),
    "t5": ("span-corruption", [f"<extra_id_{n}>" for n in range(100)]),
}
RECURRENT = ("rnn-lm", "lstm", "gru", "rnn")  # names that say nothing of sizes
REACH = 64  # tokens that a recurrent network's gradients go back through


class Choice(NamedTuple):
    """The model that is asked for."""

    kind: str
    named: dict[str, Any]
    """[model] as the user names it."""
    is_sized: bool
    """Whether its size is for us to choose."""

    @property
    def objective(self) -> str:
        return OTHERS[self.kind][0] if self.kind in OTHERS else "causal-lm"

    @property
    def special_tokens(self) -> list[str]:
        return OTHERS[self.kind][1] if self.kind in OTHERS else []

    @property
    def is_recurrent(self) -> bool:
        return self.kind == "rnn-lm"


def plan_text(request: Request) -> Plan:
    """The recipe for a language model from scratch."""
    choice = choose_model(request)
    table: dict[str, Any] = {"data": request.data, "objective": {"kind": choice.objective}}
    # Parsed once beforehand, so that a misspelt key is found before a large text is read.
    sizes = {"n_heads": MODEST.heads, "d_model": MODEST.width, "max_length": SIZES[-1][1].context}
    drafted = sizes if choice.is_sized and not choice.is_recurrent else {}
    draft = request.recipe(table | {"model": choice.named | drafted})
    n_chars = count_characters(draft)
    by_character = n_chars <= BY_CHARACTER and choice.kind not in OTHERS  # a masked character is too easy to guess
    n_tokens = n_chars if by_character else n_chars / 4
    on_gpu = pick_device(request.device).type == "cuda"
    size = next(size for most, size in SIZES if n_chars <= most) if on_gpu else MODEST
    if choice.is_recurrent:
        table["data"]["length"] = REACH
        rows = max(1, min(size.tokens, int(n_tokens / 10)) // REACH)  # each goes on for ten steps at least
        size = size._replace(tokens=rows * REACH, lr=4 * size.lr)
    drop = {"dropout": size.dropout, "attention_dropout": size.dropout}  # if the model has such keys
    drop = {key: value for key, value in drop.items() if key in type(draft.model).model_fields}
    table |= {
        "text": text_table(by_character, choice.special_tokens),
        "model": {**drop, **choice.named, **(model_sizes(choice.kind, size) if choice.is_sized else {})},
    }
    recipe = request.recipe(table | training_tables(size, n_tokens, on_gpu, request))
    announce(recipe, n_chars, n_tokens, request)
    return Plan(recipe)


def choose_model(request: Request) -> Choice:
    """The model that the request names, by --model or by settings; a GPT if it names none."""
    name = None if request.model is None else preset_name(request.model)
    # `gpt` is also a preset, the model of 2018: here it means a GPT whose size suits the text.
    named = {"kind": "gpt"} if name in (None, "gpt") else {model_key(str(name)): name}
    asked = request.override({"model": named})["model"]
    kind = str(asked.get("kind", presets().get(str(asked.get("preset")), {}).get("kind", "gpt")))
    if kind not in OTHERS:
        refuse_other_models(asked, "causal-lm", "for running text choose a GPT, an LSTM, a BERT or a T5")
    return Choice(kind, named, name in (None, "gpt", *OTHERS, *RECURRENT))


def text_table(by_character: bool, special_tokens: list[str]) -> dict[str, Any]:
    """[text]"""
    characters = {"kind": "char", "min_frequency": 1, "vocab_size": 1000}
    pieces = {"kind": "byte-bpe", "vocab_size": 8000, "strict": False}
    whitespace = "collapse" if special_tokens else "keep"
    return {**(characters if by_character else pieces), "whitespace": whitespace, "extra": special_tokens}


def model_sizes(kind: str, size: Size) -> dict[str, Any]:
    """A size in the keys of each kind of model."""
    if kind == "rnn-lm":
        return {"n_layers": 2, "d_model": 2 * size.width}  # about as many parameters as a GPT of this size
    keys = {"n_heads": size.heads, "d_model": size.width, "d_ff": 4 * size.width, "max_length": size.context}
    if kind == "t5":
        return keys | {"n_encoder_layers": size.layers, "n_decoder_layers": size.layers}
    return keys | {"n_layers": size.layers} | ({} if kind in OTHERS else {"bias": False})


def training_tables(size: Size, n_tokens: float, on_gpu: bool, request: Request) -> dict[str, Any]:
    """[optim], [schedule] and [train] for a text of n tokens."""
    steps = int(max(500, round(size.passes * n_tokens / size.tokens, -2)))
    every = int(max(50, min(1000, round(steps / 20, -1))))
    budget = request.steps(steps)
    n_parts = max(1, size.tokens // (2 * PART[on_gpu]))
    return {
        "optim": {"kind": "adamw", "lr": size.lr, "betas": [0.9, 0.99], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup": min(1000, max(50, budget // 20), budget // 2), "floor": 0.05},
        "train": {
            "tokens": size.tokens // n_parts,
            "accumulation": n_parts,
            "steps": steps,
            "validate_every": every,
            "save_every": every,
            "log_every": min(50, every),
            "patience": 10,
            "ema": 0.99,
        },
    }


def announce(recipe: Tables, n_chars: int, n_tokens: float, request: Request) -> None:
    model, train = recipe.model, recipe.train
    per_step = train.tokens * train.accumulation
    n_layers = model.n_layers if hasattr(model, "n_layers") else model.n_encoder_layers  # of one side, in a T5
    console.print(
        f"{n_chars:,} characters of training text: {model.preset or model.kind} of "
        f"{n_layers} layers and width {model.d_model}, "
        f"{recipe.data.length or model.max_length:,} tokens at a time, "
        f"{recipe.text.kind} tokens, {per_step:,} of them a step, {train.steps:,} steps "
        f"({in_passes(train.steps * per_step / n_tokens)}), peak learning rate "
        f"{recipe.optim.lr:g}, on {pick_device(request.device)}"
    )


# tokens up to: passes over them by a model that has read another text before
PASSES: list[tuple[float, int]] = [(300_000, 10), (3_000_000, 3), (float("inf"), 1)]
CONTEXT = 1024  # tokens that a published model reads at a time, unless it reads fewer


def plan_finetune_text(request: Request, start: Path, old: Tables) -> Plan:
    """The recipe of a trained model, with another text, a gentler rate, and a number of passes that suits the text."""
    table = kept_tables(request, start, old) | tuning_tables(start, old, request.method)
    draft = request.recipe(table)
    tunable_outline(draft)
    n_chars = count_characters(draft)
    n_tokens = n_chars if old.text.kind == "char" else n_chars / 4
    passes = next(passes for most, passes in PASSES if n_tokens <= most)
    # At least about ten steps a pass, of at least one row each.
    tokens = min(old.train.tokens, max(draft.data.length or draft.model.max_length, int(n_tokens / 10)))
    steps = int(max(50, round(passes * n_tokens / tokens, -1)))
    table |= gentle_training(rate_for(request.method, old.model.d_model), tokens, steps, 15, request)
    was_adapter = old.tuning is not None and old.tuning.is_partial  # then its rate suits no whole model
    if old.data is not None and request.method == "full" and not was_adapter:
        table["optim"] = old.tables()["optim"] | {"lr": old.optim.lr / 3}
    recipe = request.recipe(table)
    per_step = recipe.train.tokens * recipe.train.accumulation
    console.print(
        f"{n_chars:,} characters of training text: {SAID[request.method]} from {start}, {per_step:,} tokens a step, "
        f"{recipe.train.steps:,} steps ({in_passes(recipe.train.steps * per_step / n_tokens)}), "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}"
    )
    return Plan(recipe)


def kept_tables(request: Request, start: Path, old: Tables) -> dict[str, Any]:
    """What belongs to the weights: tokens, model and objective, and how text is read; and the new [data]."""
    tables = old.tables()
    if old.data is None and old.model.kind in OTHERS:  # a published model does not say how it was pretrained
        tables["objective"] = {"kind": OTHERS[old.model.kind][0]}
    objective = str(tables["objective"]["kind"])
    task = task_named(objective)
    if not issubclass(task.data, TextCorpora):
        raise ConfigError(
            f"{start} is a model for {objective}, not for running text",
            "start from a GPT, an LSTM, a BERT or a T5; a translator goes on with --pairs",
        )
    if request.method == "head":
        raise ConfigError("a language model has no head to replace", "choose full, lora or prefix")
    kept = ("text", "model", "objective", "decode", "evaluate", "origin")
    table: dict[str, Any] = {name: tables[name] for name in kept if name in tables}
    if task is task_named("masked-lm") and not getattr(old.model, "word_head", True):
        if request.method != "full":
            raise ConfigError(f"{start} has no head for words, and a new one must learn", "choose --method full")
        table["model"] |= {"word_head": True}
    reading = {"length": min(CONTEXT, old.model.max_length), "train": {}} if old.data is None else tables["data"]
    table["data"] = {key: reading[key] for key in ("length", "joined", "sentences") if key in reading}
    source = {key: reading["train"][key] for key in ("column", "documents") if key in reading["train"]}
    table["data"] |= {split: {**source, **files} for split, files in request.data.items()}
    return table


def count_characters(recipe: Tables) -> int:
    """Characters of the training text."""
    return sum(map(len, recipe.data.read("train")))
