"""Zero configuration for pairs: a recipe chosen from the data, and every choice said aloud.

    vocabulary   grows with the corpus, so that a piece is seen often enough to be learnt
    model        small corpora get small models and much dropout; large ones the reverse
    batch        more tokens a step as the corpus grows
    length       some number of passes over the data, fewer for larger corpora, with early stopping

The choices are made from the number of pairs and their mean length alone; the language does not matter.
"""

from pathlib import Path
from typing import Any

from clearformer.data.parallel import PairSurvey, survey_pairs
from clearformer.errors import ConfigError
from clearformer.models.build import model_key, model_task
from clearformer.tables import Tables
from clearformer.tasks.auto.common import PART, in_passes, refuse_other_models, tunable_outline, tuning_tables
from clearformer.tasks.task import Plan, Request
from clearformer.training.journal import console
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, rate_for

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


def plan_pairs(request: Request) -> Plan:
    """The recipe for a translator from scratch."""
    table: dict[str, Any] = {"data": request.data}
    model = request.model
    named = {model_key(model): model} if model not in (None, "transformer") else {}  # whose size is for us to choose
    asked = request.override(table | {"model": named})
    refuse_other_models(asked["model"], "translation", "it is trained on --text, not on pairs")
    is_ours = not {"kind", "preset"} & asked["model"].keys()
    # Parsed once beforehand, so that a misspelt key is found before a large corpus is read.
    has_two = not asked.get("text", {}).get("shared", True)
    smallest = {"preset": SIZES[0][1]} if is_ours else named
    shared = request.override(table | {"model": smallest})
    draft = request.parse({**shared, "text": {**shared.get("text", {}), "shared": True}}, "--set")
    survey = survey_pairs(draft.data)
    table |= sized(
        survey, request, draft, named if not is_ours else None, has_two, "vocab_size" in asked.get("text", {})
    )
    recipe = request.recipe(table)
    announce(recipe, survey, request)
    return Plan(recipe, survey)


def sized(
    survey: PairSurvey, request: Request, draft: Tables, named: dict[str, Any] | None, has_two: bool, is_strict: bool
) -> dict[str, Any]:
    """The tables that follow from the size of the corpus. `named` is the model that was asked for, if one was."""
    _, size, vocab, dropout, tokens, passes, lr = next(row for row in SIZES if survey.n_pairs <= row[0])
    steps = int(max(2000, round(passes * survey.n_pairs * pieces(survey) / (0.9 * tokens), -2)))
    every = int(max(50, min(1000, round(steps / 40, -1))))
    n_parts = max(1, tokens // PART[pick_device(request.device).type == "cuda"])
    fits = {"dropout": dropout, "share": "decoder" if has_two else "all"}  # if the model knows such keys
    fits = {key: value for key, value in fits.items() if key in type(draft.model).model_fields}
    if request.model in RNN_PAIRS:  # about the size of the Transformer of this row, which bears another rate
        fits |= dict(zip(("d_model", "d_embedding"), WIDTHS[size]))
        lr = 1e-3
    return {
        # A vocabulary of the size that the user asks for is meant; one of our choice may come out smaller.
        "text": {"kind": "bpe", "vocab_size": vocab, "strict": is_strict},
        "model": {**fits, **({"preset": size} if named is None else named)},
        "optim": {"lr": lr},
        "schedule": {"warmup": min(4000, request.steps(steps) // 10)},
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


def pieces(survey: PairSurvey) -> float:
    """Of a target, about four characters each."""
    return max(4.0, survey.mean_chars / 4)


def announce(recipe: Tables, survey: PairSurvey, request: Request) -> None:
    per_step = recipe.train.tokens * recipe.train.accumulation
    done = recipe.train.steps * 0.9 * per_step / (survey.n_pairs * pieces(survey))
    console.print(
        f"{survey.n_pairs:,} pairs of {survey.mean_chars:.0f} characters: "
        f"{recipe.model.preset or recipe.model.kind}, dropout {getattr(recipe.model, 'dropout', 0.0):g}, "
        f"{'one vocabulary' if recipe.text.shared else 'two vocabularies'} of at most "
        f"{recipe.text.vocab_size:,} {recipe.text.kind} pieces, {per_step:,} tokens a side and step, "
        f"{recipe.train.steps:,} steps ({in_passes(done)}), peak learning rate {recipe.optim.lr:g}, "
        f"on {pick_device(request.device)}",
    )


def plan_finetune_pairs(request: Request, start: Path, old: Tables) -> Plan:
    """The recipe of a trained model, with other data, a gentler rate, and a number of passes that suits it."""
    if (task := model_task(old.model.kind)) != "translation":
        raise ConfigError(
            f"{start} is a model for {task}, not for translation",
            "start from a translator or a T5; a language model goes on with --text",
        )
    kept = ["text", "model", "decode", "evaluate", "origin"]
    data: dict[str, Any] = {"filter": {"max_tokens": min(256, getattr(old.model, "max_length", 257) - 1)}}
    if old.objective.kind == "translation":  # else it was pretrained on text
        kept.append("objective")
        data |= {} if old.data is None else {key: old.tables()["data"][key] for key in ("filter", "prefix")}
    table: dict[str, Any] = {name: value for name, value in old.tables().items() if name in kept}
    table["data"] = request.data | data
    table |= tuning_tables(start, old, request.method)
    draft = request.recipe(table)
    tunable_outline(draft)
    survey = survey_pairs(draft.data)
    is_full = request.method == "full"
    rate = old.optim.lr / 10 if is_full else rate_for(request.method, old.model.d_model)
    tokens = min(old.train.tokens, 4096)
    steps = int(max(200, min(20_000, 10 * survey.n_pairs * pieces(survey) / tokens)))
    every = max(20, steps // 20)
    table |= {
        "optim": {**old.tables()["optim"], "lr": rate},
        "schedule": {"kind": "cosine", "warmup": min(100, request.steps(steps) // 10)},
        "train": {"tokens": tokens, "steps": steps, "validate_every": every, "save_every": every, "patience": 5},
    }
    recipe = request.recipe(table)
    console.print(
        f"{survey.n_pairs:,} pairs of {survey.mean_chars:.0f} characters: {SAID[request.method]} from {start}, "
        f"{recipe.train.tokens:,} tokens a side and step, {recipe.train.steps:,} steps, "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}",
    )
    return Plan(recipe, survey)
