"""Zero-configuration defaults for labelled texts.

    from scratch    an encoder of two layers, narrow with high dropout for few texts (sizes.py)
    fine-tuning     a learning rate that suits the method, fewer epochs for more texts, and about 32 texts per step

Both use early stopping.
"""

from pathlib import Path
from typing import Any

from clearformer.data.labels import LabelSource, note_of_header
from clearformer.data.tags import is_tagged
from clearformer.errors import ConfigError
from clearformer.models.build import model_class, model_key, model_task
from clearformer.tables import Tables
from clearformer.tasks.auto.common import (
    describe_optimizer,
    finetuning_tables,
    in_epochs,
    print_plan,
    tunable_outline,
    tuning_tables,
)
from clearformer.tasks.auto.sizes import TUNE_LABELS, LabelSizes, label_sizes, tens
from clearformer.tasks.task import Plan, Request
from clearformer.training.config import rounds
from clearformer.training.journal import console
from clearformer.tuning.methods import METHOD_NAMES, rate_for
from clearformer.wording import count

OBJECTIVES = {False: "classification", True: "token-classification"}  # the key says whether words are labelled
MAX_LENGTH = 256  # maximum length of a classifier trained from scratch, in tokens


def plan_labels(request: Request) -> Plan:
    """Choose a recipe to train a classifier from scratch."""
    by_word, model = is_tagged(request.sources["train"]["path"]), request.model
    table: dict[str, Any] = {"data": request.data, "objective": {"kind": OBJECTIVES[by_word]}}
    named = {model_key(model): model} if model else {"kind": "bert"}
    is_sized = model in (None, "bert")
    drafted = shape_of(label_sizes(1)) if is_sized else {}  # as --set sees it: 4 heads, not BERT's 12
    draft = request.recipe(table | {"model": {"kind": "classifier", "base": named | drafted}})
    n, n_chars = survey_labels(draft)
    chosen = label_sizes(n)
    dropout, tokens = chosen.dropout, chosen.tokens
    steps = max(200, tens(chosen.epochs * n * mean_tokens(n, n_chars) / tokens))
    steps = request.in_epochs(steps, n * mean_tokens(n, n_chars), tokens)
    sizes = shape_of(chosen) | {"max_length": MAX_LENGTH, "residual": "pre", "first_norm": False}
    sizes |= {"attention_dropout": dropout}
    base = {**named, "dropout": dropout, **(sizes if is_sized else {})}
    pooling = pooling_for(draft.model.base.kind, by_word, request.exportable)
    table |= {
        # Case is useful for classifying words, but hardly for classifying texts.
        "text": {"kind": "wordpiece", "vocab_size": chosen.vocabulary, "lowercase": not by_word, "strict": False},
        "model": {"kind": "classifier", "base": base, "pooling": pooling, "dropout": dropout},
        "optim": {"kind": "adamw", "lr": chosen.lr, "betas": [0.9, 0.98], "weight_decay": 0.1},
        "schedule": {"kind": "linear", "warmup": request.steps(steps) // 10},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, 20), "patience": 6, "ema": 0.99},
    }
    recipe = request.recipe(table)
    announce(recipe, n, n_chars, request)
    return Plan(recipe)


def shape_of(sizes: LabelSizes) -> dict[str, Any]:
    return {"n_layers": sizes.layers, "n_heads": sizes.heads, "d_model": sizes.width, "d_ff": 4 * sizes.width}


def announce(recipe: Tables, n: int, n_chars: int, request: Request) -> None:
    base = recipe.model.base
    layers = f"{count(base.n_layers, 'layer')}, " if hasattr(base, "n_layers") else ""
    print_plan(
        describe_texts(n, n_chars),
        f"classifier on {base.preset or base.kind} with {layers}width {base.d_model} and dropout {base.dropout:g}, "
        f"a vocabulary of at most {count(recipe.text.vocab_size, f'{recipe.text.kind} token')}",
        f"{count(recipe.train.steps, 'step')} with {count(recipe.train.tokens, 'token')} each, "
        f"{describe_optimizer(recipe, request)}",
    )


def describe_texts(n: int, n_chars: int) -> str:
    return f"{count(n, 'labelled text')}, {count(round(n_chars / n), 'character')} each on average"


ROWS = 32  # texts per step


def plan_finetune_labels(request: Request, start: Path, old: Tables) -> Plan:
    """Choose a recipe to fine-tune a model as a classifier, with one of the four methods in tuning/methods.py."""
    config, method = old.model.base if old.model.kind == "classifier" else old.model, request.method
    if (task := model_task(config.kind)) not in ("masked-lm", "causal-lm"):
        raise ConfigError(
            f"{start} is a model for {task}; a text classifier cannot be built on it",
            "start from a BERT, a GPT or a classifier",
        )
    by_word = is_tagged(request.sources["train"]["path"])
    table: dict[str, Any] = {
        "data": request.data,
        "text": old.tables()["text"],
        "model": {
            "kind": "classifier",
            "pooling": pooling_for(config.kind, by_word, request.exportable),
            "base": config.model_dump(mode="json", exclude_none=True),
        },
        "objective": {"kind": OBJECTIVES[by_word]},
        **tuning_tables(start, old, method),
    }
    draft = request.recipe(table)
    tunable_outline(draft)
    n, n_chars = survey_labels(draft)
    epochs = TUNE_LABELS[method](n)
    tokens = int(min(8192, max(512, ROWS * mean_tokens(n, n_chars))))
    steps = max(50, round(epochs * n * mean_tokens(n, n_chars) / tokens))
    steps = request.in_epochs(steps, n * mean_tokens(n, n_chars), tokens)
    table |= finetuning_tables(rate_for(method, config.d_model), tokens, steps, epochs, request)
    recipe = request.recipe(table)
    per_step = recipe.train.tokens * recipe.train.accumulation
    n_epochs = recipe.train.steps * per_step / (n * mean_tokens(n, n_chars))
    print_plan(
        describe_texts(n, n_chars),
        f"{METHOD_NAMES[method]} of {start}, pooling {recipe.model.pooling}",
        f"{count(recipe.train.steps, 'step')} ({in_epochs(n_epochs)}) with {count(per_step, 'token')} each, "
        f"{describe_optimizer(recipe, request)}",
    )
    return Plan(recipe)


def survey_labels(recipe: Tables) -> tuple[int, int]:
    """Return the number of training examples and of their characters. A pair of texts is one example."""
    examples = recipe.data.read("train", recipe.train.seed)
    if not examples:
        raise ConfigError("no texts are left to train on", "add texts, or lower data.held_out and data.held_out_test")
    source = recipe.data.train
    is_chosen = not isinstance(source, LabelSource) or source.text is not None or source.label is not None
    if not is_chosen and (note := note_of_header(recipe.data.source("train"), examples)) is not None:
        console.print(note, markup=False)
    return len(examples), sum(len(text) for example in examples for text in example.texts)


def pooling_for(kind: str, by_word: bool, exportable: bool = False) -> str:
    """Return "none" for labelled words; otherwise the pooling set by the model class, or the default of its task.

    An exportable BERT has its pooler: Hugging Face has no BERT that classifies the mean over the tokens.
    """
    usual = "last" if model_task(kind) == "causal-lm" else "pooler" if exportable and kind == "bert" else "mean"
    return "none" if by_word else str(getattr(model_class(kind), "pooling", usual))


def mean_tokens(n: int, n_chars: int) -> float:
    """Estimate the mean number of tokens per text, including special tokens, at four characters per token."""
    return n_chars / n / 4 + 3
