"""Zero-configuration defaults for text. The choices depend on the number of characters.

    tokens   characters for a short text, byte-level BPE for a long text
    model    a GPT, or the architecture given by the user; on a GPU, wider for longer texts (sizes.py)

Fine-tuning keeps the tokenizer, the objective and the context length of the trained model.
"""

from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.built.folder import is_built, read_index
from clearformer.data.corpora import TextCorpora
from clearformer.errors import ConfigError, DataError
from clearformer.models.build import model_key, preset_name, presets
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.auto.common import (
    MICRO_BATCH,
    built_tables,
    describe_optimizer,
    finetuning_tables,
    in_epochs,
    micro_batches,
    print_plan,
    refuse_other_models,
    tunable_outline,
    tuning_tables,
)
from clearformer.tasks.auto.sizes import (
    CHARACTERS,
    CHARS_PER_TOKEN,
    MODEST,
    TUNE_TEXT,
    TextSizes,
    tens,
    text_sizes,
    tokens_of_text,
)
from clearformer.tasks.task import Plan, Request
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import METHOD_NAMES, rate_for
from clearformer.wording import count

# Objective and special tokens of the architectures that do not simply read text from left to right.
OTHERS: dict[str, tuple[str, list[str]]] = {
    "bert": ("masked-lm", ["[MASK]"]),
    "t5": ("span-corruption", [f"<extra_id_{n}>" for n in range(100)]),
}
RECURRENT = ("rnn-lm", "lstm", "gru", "rnn")  # names without a size
LONGEST = 1024  # tokens of context that zero configuration chooses at most
REACH = 64  # tokens of backpropagation through time in a recurrent network


class Choice(NamedTuple):
    """The model to train."""

    kind: str
    named: dict[str, Any]
    """[model] as given by the user."""
    is_sized: bool
    """Whether zero configuration chooses the size."""

    @property
    def objective(self) -> str:
        return OTHERS[self.kind][0] if self.kind in OTHERS else "causal-lm"

    @property
    def special_tokens(self) -> list[str]:
        return OTHERS[self.kind][1] if self.kind in OTHERS else []

    def built_data(self, built: dict[str, Any]) -> dict[str, Any]:
        """The part of [data] that a folder was built with; a task that cannot use the folder refuses it later."""
        return {} if self.kind in OTHERS else built.get("data", {})

    @property
    def is_recurrent(self) -> bool:
        return self.kind == "rnn-lm"


def plan_text(request: Request) -> Plan:
    """Choose a recipe to train a language model from scratch."""
    choice = choose_model(request)
    built = built_tables(request)
    table: dict[str, Any] = {"data": request.data | choice.built_data(built), "objective": {"kind": choice.objective}}
    # Validated once before the text is read, so that a misspelt key is reported at once.
    sizes = {"n_heads": MODEST.heads, "d_model": MODEST.width, "max_length": LONGEST}
    drafted = sizes if choice.is_sized and not choice.is_recurrent else {}
    draft = request.recipe(table | {"model": choice.named | drafted})
    n_chars = count_characters(draft)
    has_characters = choice.kind not in OTHERS  # a masked character is too easy to predict
    by_character = n_chars <= CHARACTERS and has_characters
    if built:
        by_character = built["text"]["kind"] == "char"
    n_tokens = n_chars if by_character else n_chars / CHARS_PER_TOKEN
    on_gpu = pick_device(request.device).type == "cuda"
    size = text_sizes(n_chars) if on_gpu else MODEST
    if choice.is_recurrent:
        table["data"]["length"] = REACH
        rows = max(1, min(size.tokens, int(n_tokens / 10)) // REACH)  # each row is at least ten steps long
        size = size._replace(tokens=rows * REACH, lr=4 * size.lr)
    drop = {"dropout": size.dropout, "attention_dropout": size.dropout}  # if the model has these keys
    drop = {key: value for key, value in drop.items() if key in type(draft.model).model_fields}
    table |= {
        "text": built.get("text") or text_table(by_character, choice.special_tokens),
        "model": {**drop, **choice.named, **(model_sizes(choice.kind, size) if choice.is_sized else {})},
    }
    steps = max(500, tens(size.epochs * tokens_of_text(n_chars, has_characters) / size.tokens))
    recipe = request.recipe(table | training_tables(size, steps, n_tokens, on_gpu, request))
    announce(recipe, n_chars, n_tokens, request)
    return Plan(recipe)


def choose_model(request: Request) -> Choice:
    """Return the model given by --model or by the settings; a GPT by default."""
    name = None if request.model is None else preset_name(request.model)
    # `gpt` is also a preset, the model of 2018; here it means a GPT of a size that suits the text.
    named = {"kind": "gpt"} if name in (None, "gpt") else {model_key(str(name)): name}
    overridden = request.override({"model": named})["model"]
    kind = str(overridden.get("kind", presets().get(str(overridden.get("preset")), {}).get("kind", "gpt")))
    if kind not in OTHERS:
        refuse_other_models(overridden, "causal-lm", "for --text choose a GPT, an LSTM, a BERT or a T5")
    return Choice(kind, named, name in (None, "gpt", *OTHERS, *RECURRENT))


def text_table(by_character: bool, special_tokens: list[str]) -> dict[str, Any]:
    """Return the [text] table."""
    characters = {"kind": "char", "min_frequency": 1}
    subwords = {"kind": "byte-bpe", "strict": False}
    whitespace = "collapse" if special_tokens else "keep"
    kind = characters if by_character else subwords
    return {**kind, "vocab_size": 8000, "whitespace": whitespace, "extra": special_tokens}


def model_sizes(kind: str, size: TextSizes) -> dict[str, Any]:
    """Return the size as settings of [model], whose keys differ between architectures."""
    if kind == "rnn-lm":
        return {"n_layers": 2, "d_model": 2 * size.width}  # about as many parameters as a GPT of this size
    keys = {"n_heads": size.heads, "d_model": size.width, "d_ff": 4 * size.width, "max_length": size.context}
    if kind == "t5":
        return keys | {"n_encoder_layers": size.layers, "n_decoder_layers": size.layers}
    return keys | {"n_layers": size.layers} | ({} if kind in OTHERS else {"bias": False})


def training_tables(size: TextSizes, steps: int, n_tokens: float, on_gpu: bool, request: Request) -> dict[str, Any]:
    """Return the [optim], [schedule] and [train] tables for a text of `n_tokens` tokens."""
    tokens, n_parts = micro_batches(size.tokens, 2 * MICRO_BATCH[on_gpu])
    steps = request.in_epochs(steps, n_tokens, tokens, n_parts)
    interval = max(50, min(1000, steps // 20))
    budget = request.steps(steps)
    return {
        "optim": {"kind": "adamw", "lr": size.lr, "betas": [0.9, 0.99], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup": min(1000, max(50, budget // 20), budget // 2), "floor": 0.05},
        "train": {
            "tokens": tokens,
            "accumulation": n_parts,
            "steps": steps,
            "validate_every": interval,
            "save_every": interval,
            "log_every": min(50, interval),
            "patience": 10,
            "ema": 0.99,
        },
    }


def announce(recipe: Tables, n_chars: int, n_tokens: float, request: Request) -> None:
    model, train = recipe.model, recipe.train
    per_step = train.tokens * train.accumulation
    n_layers, stack = (model.n_layers, "") if hasattr(model, "n_layers") else (model.n_encoder_layers, " per stack")
    print_plan(
        f"{count(n_chars, 'character')} of training text",
        f"{model.preset or model.kind} with {count(n_layers, 'layer')}{stack}, width {model.d_model} and a context of "
        f"{count(recipe.data.length or model.max_length, f'{recipe.text.kind} token')}",
        f"{count(train.steps, 'step')} ({in_epochs(train.steps * per_step / n_tokens)}) with "
        f"{count(per_step, 'token')} each, {describe_optimizer(recipe, request)}",
    )


CONTEXT = 1024  # maximum context length for fine-tuning a published model, in tokens


def plan_finetune_text(request: Request, start: Path, old: Tables) -> Plan:
    """Adapt the recipe of a trained model to new text, with a lower learning rate and a suitable number of epochs."""
    table = inherited_tables(request, start, old) | tuning_tables(start, old, request.method)
    draft = request.recipe(table)
    tunable_outline(draft)
    n_chars = count_characters(draft)
    n_tokens = n_chars if old.text.kind == "char" else n_chars / CHARS_PER_TOKEN
    # An epoch has about ten steps or more, and each step at least one row.
    tokens = min(old.train.tokens, max(draft.data.length or draft.model.max_length, int(n_tokens / 10)))
    steps = request.in_epochs(max(50, round(TUNE_TEXT(n_tokens) * n_tokens / tokens)), n_tokens, tokens)
    table |= finetuning_tables(rate_for(request.method, old.model.d_model), tokens, steps, 15, request)
    was_adapter = old.tuning is not None and old.tuning.is_partial  # its learning rate is too high to train all weights
    if old.data is not None and request.method == "full" and not was_adapter:
        table["optim"] = old.tables()["optim"] | {"lr": old.optim.lr / 3}
    recipe = request.recipe(table)
    per_step = recipe.train.tokens * recipe.train.accumulation
    print_plan(
        f"{count(n_chars, 'character')} of training text",
        f"{METHOD_NAMES[request.method]} of {start}",
        f"{count(recipe.train.steps, 'step')} ({in_epochs(recipe.train.steps * per_step / n_tokens)}) with "
        f"{count(per_step, 'token')} each, {describe_optimizer(recipe, request)}",
    )
    return Plan(recipe)


def inherited_tables(request: Request, start: Path, old: Tables) -> dict[str, Any]:
    """Return the tables that must fit the weights, such as [text], [model] and [objective], with the new [data]."""
    tables = old.tables()
    if old.data is None and old.model.kind in OTHERS:  # the files of a published model do not record its objective
        tables["objective"] = {"kind": OTHERS[old.model.kind][0]}
    objective = str(tables["objective"]["kind"])
    task = task_named(objective)
    if not issubclass(task.data, TextCorpora):
        raise ConfigError(
            f"{start} is a model for {objective}, not for text",
            "start from a GPT, an LSTM, a BERT or a T5; a translator is fine-tuned on --pairs",
        )
    if request.method == "head":
        raise ConfigError(
            "a language model has no classification head to replace", "choose --method full, lora or prefix"
        )
    inherited = ("text", "model", "objective", "decode", "evaluate", "origin")
    table: dict[str, Any] = {name: tables[name] for name in inherited if name in tables}
    if task is task_named("masked-lm") and not getattr(old.model, "word_head", True):
        if request.method != "full":
            raise ConfigError(
                f"{start} has no language-model head, and a new one must be trained", "choose --method full"
            )
        table["model"] |= {"word_head": True}
    reading = {"length": min(CONTEXT, old.model.max_length), "train": {}} if old.data is None else tables["data"]
    table["data"] = {key: reading[key] for key in ("length", "joined", "sentences") if key in reading}
    source = {key: reading["train"][key] for key in ("column", "documents") if key in reading["train"]}
    table["data"] |= {split: {**source, **files} for split, files in request.data.items()}
    return table


def count_characters(recipe: Tables) -> int:
    """Count the characters of the training text."""
    path = recipe.data.source("train").path
    path = path[0] if isinstance(path, tuple) else path
    n_chars = read_index(path).n_chars if is_built(path) else sum(map(len, recipe.data.parts("train")))
    if n_chars == 0:
        raise DataError("no text is left to train on", "add text, or lower data.held_out and data.held_out_test")
    return n_chars
