"""Zero-configuration defaults for sentence pairs.

    vocabulary   grows with the corpus, so that each token occurs often enough to be learnt
    model        narrow with high dropout for small corpora, wide with low dropout for large corpora
    batch        more tokens per step for larger corpora
    epochs       fewer for larger corpora; early stopping ends a run that no longer improves

The choices are functions of the number of pairs and their mean length (sizes.py), not of the languages.
"""

from pathlib import Path
from typing import Any

from clearformer.data.parallel import PairSurvey, survey_pairs
from clearformer.errors import ConfigError
from clearformer.models.build import model_key, model_task
from clearformer.tables import Tables
from clearformer.tasks.auto.common import (
    MICRO_BATCH,
    built_tables,
    describe_optimizer,
    in_epochs,
    micro_batches,
    print_plan,
    refuse_other_models,
    tunable_outline,
    tuning_tables,
)
from clearformer.tasks.auto.sizes import HEADS, LAYERS, LEAST_STEPS, PairSizes, pair_rate, pair_sizes, tens
from clearformer.tasks.task import Plan, Request
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import METHOD_NAMES, rate_for
from clearformer.wording import count

RNN_PAIRS = ("seq2seq", "bahdanau")  # names without a size


def plan_pairs(request: Request) -> Plan:
    """Choose a recipe to train a translator from scratch."""
    built = built_tables(request)
    table: dict[str, Any] = {"data": request.data | built.get("data", {})}
    model = request.model
    # A plain transformer is given a size below.
    named = {model_key(model): model} if model not in (None, "transformer") else {}
    overridden = request.override(table | {"model": named})
    refuse_other_models(
        overridden["model"], "translation", "for --pairs choose a translator such as transformer-small or bahdanau"
    )
    is_sized = not {"kind", "preset"} & overridden["model"].keys()
    # Validated once before the corpus is read, so that a misspelt key is reported at once.
    has_two = not overridden.get("text", {}).get("shared", True)
    smallest = transformer(pair_sizes(1)) if is_sized else named
    shared = request.override(table | {"model": smallest})
    draft = request.parse({**shared, "text": {**shared.get("text", {}), "shared": True}}, "--set")
    survey = survey_pairs(draft.data)
    table |= sized(
        survey, request, draft, named if not is_sized else None, has_two, "vocab_size" in overridden.get("text", {})
    )
    if built:
        table["text"] = built["text"]
    recipe = request.recipe(table)
    announce(recipe, survey, request)
    return Plan(recipe, survey)


def sized(
    survey: PairSurvey, request: Request, draft: Tables, named: dict[str, Any] | None, has_two: bool, is_strict: bool
) -> dict[str, Any]:
    """Return the tables that depend on the size of the corpus. `named` is the model chosen by the user, if any."""
    sizes = pair_sizes(survey.n_pairs)
    n_tokens = survey.n_pairs * mean_tokens(survey) / 0.9  # with padding
    tokens, n_parts = micro_batches(sizes.tokens, MICRO_BATCH[pick_device(request.device).type == "cuda"])
    steps = max(LEAST_STEPS, tens(sizes.epochs * n_tokens / sizes.tokens))
    steps = request.in_epochs(steps, n_tokens, tokens, n_parts)
    interval = max(50, min(1000, steps // 40))
    model = transformer(sizes) if named is None else named
    fits = {"dropout": sizes.dropout, "share": "decoder" if has_two else "all"}  # if the model has these keys
    fits = {key: value for key, value in fits.items() if key in type(draft.model).model_fields}
    lr = pair_rate(sizes.tokens, sizes.width if named is None else getattr(draft.model, "d_model", sizes.width))
    if request.model in RNN_PAIRS:  # another learning rate than a Transformer
        fits |= dict(zip(("d_model", "d_embedding"), sizes.recurrent))
        lr = 1e-3
    return {
        # A vocabulary size set by the user must be reached; with a size chosen here, the vocabulary may be smaller.
        "text": {"kind": "bpe", "vocab_size": sizes.vocabulary, "strict": is_strict},
        "model": {**fits, **model},
        "optim": {"lr": lr},
        "schedule": {"warmup": min(4000, request.steps(steps) // 10)},
        "train": {
            "tokens": tokens,
            "accumulation": n_parts,
            "steps": steps,
            "validate_every": interval,
            "save_every": interval,
            "log_every": min(50, interval),
            "patience": 10,
        },
    }


def transformer(sizes: PairSizes) -> dict[str, Any]:
    """Return the [model] table of a Transformer of this size."""
    layers = {"n_encoder_layers": LAYERS, "n_decoder_layers": LAYERS, "n_heads": HEADS}
    return {"kind": "transformer", **layers, "d_model": sizes.width, "d_ff": sizes.feed_forward}


def mean_tokens(survey: PairSurvey) -> float:
    """Estimate the mean number of tokens per target, at four characters per token."""
    return max(4.0, survey.mean_chars / 4)


def announce(recipe: Tables, survey: PairSurvey, request: Request) -> None:
    per_step = recipe.train.tokens * recipe.train.accumulation
    n_epochs = recipe.train.steps * 0.9 * per_step / (survey.n_pairs * mean_tokens(survey))
    width = f"width {recipe.model.d_model}, " if hasattr(recipe.model, "d_model") else ""
    print_plan(
        describe_pairs(survey),
        f"{recipe.model.preset or recipe.model.kind}, {width}dropout {getattr(recipe.model, 'dropout', 0.0):g}, "
        f"{'one vocabulary' if recipe.text.shared else 'two vocabularies'} of at most "
        f"{count(recipe.text.vocab_size, f'{recipe.text.kind} token')}",
        f"{count(recipe.train.steps, 'step')} ({in_epochs(n_epochs)}) with "
        f"{count(per_step, 'token')} per side and step, {describe_optimizer(recipe, request)}",
    )


def describe_pairs(survey: PairSurvey) -> str:
    return f"{count(survey.n_pairs, 'pair')}, {count(round(survey.mean_chars), 'character')} each on average"


def plan_finetune_pairs(request: Request, start: Path, old: Tables) -> Plan:
    """Adapt the recipe of a trained model to new data, with a lower learning rate and a suitable number of steps."""
    if (task := model_task(old.model.kind)) != "translation":
        raise ConfigError(
            f"{start} is a model for {task}, not for translation",
            "start from a translator or a T5; a language model is fine-tuned on --text",
        )
    inherited = ["text", "model", "decode", "evaluate", "origin"]
    data: dict[str, Any] = {"filter": {"max_tokens": min(256, getattr(old.model, "max_length", 257) - 1)}}
    if old.objective.kind == "translation":  # otherwise it was pretrained on text
        inherited.append("objective")
        data |= {} if old.data is None else {key: old.tables()["data"][key] for key in ("filter", "prefix")}
    table: dict[str, Any] = {name: value for name, value in old.tables().items() if name in inherited}
    table["data"] = request.data | data
    table |= tuning_tables(start, old, request.method)
    draft = request.recipe(table)
    tunable_outline(draft)
    survey = survey_pairs(draft.data)
    is_full = request.method == "full"
    rate = old.optim.lr / 10 if is_full else rate_for(request.method, old.model.d_model)
    tokens = min(old.train.tokens, 4096)
    steps = int(max(200, min(20_000, 10 * survey.n_pairs * mean_tokens(survey) / tokens)))
    steps = request.in_epochs(steps, survey.n_pairs * mean_tokens(survey), tokens)
    interval = max(20, steps // 20)
    table |= {
        "optim": {**old.tables()["optim"], "lr": rate},
        "schedule": {"kind": "cosine", "warmup": min(100, request.steps(steps) // 10)},
        "train": {"tokens": tokens, "steps": steps, "validate_every": interval, "save_every": interval, "patience": 5},
    }
    recipe = request.recipe(table)
    print_plan(
        describe_pairs(survey),
        f"{METHOD_NAMES[request.method]} of {start}",
        f"{count(recipe.train.steps, 'step')} with {count(recipe.train.tokens, 'token')} per side and step, "
        f"{describe_optimizer(recipe, request)}",
    )
    return Plan(recipe, survey)
