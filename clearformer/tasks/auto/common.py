"""The part of zero configuration common to all types of data: checks, the printed summary, and fine-tuning settings."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.data.built.folder import is_built, read_index
from clearformer.errors import ConfigError
from clearformer.models import MODELS
from clearformer.models.build import model_task, outline, preset_name, presets
from clearformer.tables import Tables
from clearformer.tasks.task import Request
from clearformer.training.config import rounds
from clearformer.training.journal import console
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import Method, refuse_method

MICRO_BATCH = {True: 8192, False: 4096}  # maximum tokens per side, on CUDA and elsewhere: limited by memory


def refuse_other_models(model: Mapping[str, Any], task: str, hint: str) -> None:
    """Refuse a model that belongs to another task. Unknown names are refused later, when the recipe is validated."""
    sizes = presets().get(preset_name(str(model.get("preset"))), {})
    kind = str(model.get("kind", sizes.get("kind")))
    if kind in MODELS and (other := model_task(kind)) != task:
        raise ConfigError(f"{model.get('preset', kind)} is a model for {other}, not for {task}", hint)


def built_tables(request: Request) -> dict[str, Any]:
    """Return the tables [text] and [data] that the training data was built with; {} for ordinary files."""
    path = request.sources["train"]["path"]
    path = path[0] if isinstance(path, tuple) else path
    return read_index(path).tables if is_built(path) else {}


def print_plan(data: str, model: str, training: str) -> None:
    """Print the choices of zero configuration."""
    console.print(f"data: {data}\nmodel: {model}\ntraining: {training}")


def describe_optimizer(recipe: Tables, request: Request) -> str:
    return f"peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}"


def in_epochs(epochs: float) -> str:
    return f"about {epochs:.2f} epochs" if epochs < 2 else f"about {epochs:,.0f} epochs"


def tuning_tables(start: Path, old: Tables, method: Method) -> dict[str, Any]:
    """Return the [tuning] table and, if the base model was imported, its [origin] table."""
    tuning = {"method": method, "base": str(start.resolve())}
    return {"tuning": tuning} | ({} if old.origin is None else {"origin": old.tables()["origin"]})


def tunable_outline(recipe: Tables) -> nn.Module:
    """Build the network without weights. An unsupported fine-tuning method is refused here, before data is read."""
    network = outline(recipe.model)
    if recipe.tuning is not None:
        refuse_method(network, recipe.tuning)
    return network


def micro_batches(tokens: int, most: int) -> tuple[int, int]:
    """Divide the tokens of a step into micro-batches of at most `most` tokens; return their size and their number."""
    n = math.ceil(tokens / most)
    return tokens // n, n


def finetuning_tables(lr: float, tokens: int, steps: int, n: float, request: Request) -> dict[str, Any]:
    """Return the [optim], [schedule] and [train] tables for fine-tuning, with min(n, 15) validations."""
    return {
        "optim": {"kind": "adamw", "lr": lr, "betas": [0.9, 0.999], "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup": request.steps(steps) // 10},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, min(n, 15)), "patience": 5, "ema": 0.0},
    }
