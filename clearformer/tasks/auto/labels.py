"""Zero configuration for labelled texts: a recipe chosen from how many there are, and every choice said aloud.

    from scratch    a small encoder with much dropout: a few thousand texts teach few words
    on a model      a rate that suits the method; fewer passes over more texts; as many tokens a step as fill 32 rows

Both stop early, once validation gets no better.
"""

from pathlib import Path
from typing import Any

from clearformer.data.tags import is_tagged
from clearformer.errors import ConfigError
from clearformer.models.build import model_class, model_key, model_task
from clearformer.tables import Tables
from clearformer.tasks.auto.common import gentle_training, in_passes, tunable_outline, tuning_tables
from clearformer.tasks.task import Plan, Request
from clearformer.training.journal import console
from clearformer.training.loop import rounds
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, rate_for

# examples up to: layers, heads, width, dropout, vocabulary, tokens a step, passes over the data, peak learning rate
CLASSIFIERS: list[tuple[float, int, int, int, float, int, int, int, float]] = [
    (2_000, 1, 4, 64, 0.3, 2_000, 1024, 40, 2e-3),
    (50_000, 2, 4, 128, 0.3, 8_000, 2048, 20, 1e-3),
    (1_000_000, 4, 8, 256, 0.2, 16_000, 8192, 8, 5e-4),
    (float("inf"), 6, 8, 512, 0.1, 32_000, 16384, 3, 3e-4),
]
OBJECTIVES = {False: "classification", True: "token-classification"}  # by whether words are labelled
READ = 256  # tokens of a text that a classifier from scratch reads


def plan_labels(request: Request) -> Plan:
    """The recipe for a classifier from scratch."""
    by_word, model = is_tagged(request.sources["train"]["path"]), request.model
    table: dict[str, Any] = {"data": request.data, "objective": {"kind": OBJECTIVES[by_word]}}
    named = {model_key(model): model} if model else {"kind": "bert"}
    draft = request.recipe(table | {"model": {"kind": "classifier", "base": named}})
    n, n_chars = survey_labels(draft)
    layers, heads, width, dropout, vocab, tokens, passes, lr = next(row for row in CLASSIFIERS if n <= row[0])[1:]
    steps = int(max(200, round(passes * n * mean_tokens(n, n_chars) / tokens, -1)))
    sizes: dict[str, Any] = {"n_layers": layers, "n_heads": heads, "d_model": width, "d_ff": 4 * width}
    sizes |= {"max_length": READ, "residual": "pre", "first_norm": False, "attention_dropout": dropout}
    base = {**named, "dropout": dropout, **(sizes if model in (None, "bert") else {})}
    pooling = pooling_for(draft.model.base.kind, by_word)
    table |= {
        # Capitals say what kind of word it is, and little of what a text is about.
        "text": {"kind": "wordpiece", "vocab_size": vocab, "lowercase": not by_word, "strict": False},
        "model": {"kind": "classifier", "base": base, "pooling": pooling, "dropout": dropout},
        "optim": {"kind": "adamw", "lr": lr, "betas": [0.9, 0.98], "weight_decay": 0.1},
        "schedule": {"kind": "linear", "warmup": request.steps(steps) // 10},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, 20), "patience": 6, "ema": 0.99},
    }
    recipe = request.recipe(table)
    announce(recipe, n, n_chars, request)
    return Plan(recipe)


def announce(recipe: Tables, n: int, n_chars: int, request: Request) -> None:
    base = recipe.model.base
    console.print(
        f"{n:,} labelled texts of {n_chars / n:.0f} characters: a classifier on a {base.preset or base.kind} of "
        f"{f'{base.n_layers} layers and ' if hasattr(base, 'n_layers') else ''}width {base.d_model}, "
        f"dropout {base.dropout:g}, at most "
        f"{recipe.text.vocab_size:,} {recipe.text.kind} pieces, {recipe.train.tokens:,} tokens a step, "
        f"{recipe.train.steps:,} steps, peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}"
    )


# examples up to: passes over the data by method
PASSES: list[tuple[float, dict[str, int]]] = [
    (2_000, {"full": 8, "lora": 15, "prefix": 20, "head": 20}),
    (20_000, {"full": 4, "lora": 6, "prefix": 8, "head": 8}),
    (float("inf"), {"full": 3, "lora": 3, "prefix": 4, "head": 3}),
]
ROWS = 32  # texts a step


def plan_finetune_labels(request: Request, start: Path, old: Tables) -> Plan:
    """The recipe for a classifier on a trained model, by one of the four methods of tuning/methods.py."""
    config, method = old.model.base if old.model.kind == "classifier" else old.model, request.method
    if (task := model_task(config.kind)) not in ("masked-lm", "causal-lm"):
        raise ConfigError(
            f"{start} is a model for {task}, on which no classifier of texts can be built",
            "start from a BERT, a GPT or a classifier",
        )
    by_word = is_tagged(request.sources["train"]["path"])
    table: dict[str, Any] = {
        "data": request.data,
        "text": old.tables()["text"],
        "model": {
            "kind": "classifier",
            "pooling": pooling_for(config.kind, by_word),
            "base": config.model_dump(mode="json", exclude_none=True),
        },
        "objective": {"kind": OBJECTIVES[by_word]},
        **tuning_tables(start, old, method),
    }
    draft = request.recipe(table)
    tunable_outline(draft)
    n, n_chars = survey_labels(draft)
    passes = next(row for row in PASSES if n <= row[0])[1][method]
    tokens = int(min(8192, max(512, ROWS * mean_tokens(n, n_chars))))
    steps = int(max(50, round(passes * n * mean_tokens(n, n_chars) / tokens, -1)))
    table |= gentle_training(rate_for(method, config.d_model), tokens, steps, passes, request)
    recipe = request.recipe(table)
    per_step = recipe.train.tokens * recipe.train.accumulation
    done = recipe.train.steps * per_step / (n * mean_tokens(n, n_chars))
    console.print(
        f"{n:,} labelled texts of {n_chars / n:.0f} characters: {SAID[method]} on {start}, "
        f"pooling {recipe.model.pooling}, {per_step:,} tokens a step, {recipe.train.steps:,} steps "
        f"({in_passes(done)}), peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}"
    )
    return Plan(recipe)


def survey_labels(recipe: Tables) -> tuple[int, int]:
    """The number of training texts and of their characters; both texts of a pair count."""
    examples = recipe.data.read("train", recipe.train.seed)
    if not examples:
        raise ConfigError("no text is left to train on", "give more, or hold out a smaller share")
    return len(examples), sum(len(text) for example in examples for text in example.texts)


def pooling_for(kind: str, by_word: bool) -> str:
    """The pooling that this kind of network asks for, else the usual one; none where each word is judged."""
    usual = "last" if model_task(kind) == "causal-lm" else "mean"
    return "none" if by_word else str(getattr(model_class(kind), "pooling", usual))


def mean_tokens(n: int, n_chars: int) -> float:
    """Tokens of a text with its frame, at about four characters a piece."""
    return n_chars / n / 4 + 3
