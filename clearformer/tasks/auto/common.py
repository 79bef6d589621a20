"""What all kinds of data share when a recipe is chosen for them: refusals, and the settings of a fine-tuning."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.errors import ConfigError
from clearformer.models import MODELS
from clearformer.models.build import model_task, outline, preset_name, presets
from clearformer.tables import Tables
from clearformer.tasks.task import Request
from clearformer.training.loop import rounds
from clearformer.tuning.methods import Method, refuse_method

PART = {True: 8192, False: 4096}  # tokens a side that are computed at once, on CUDA and elsewhere: memory bounds them


def refuse_other_models(model: Mapping[str, Any], task: str, hint: str) -> None:
    """Refuse a model that is made for another task. An unknown name is for the recipe to refuse."""
    sizes = presets().get(preset_name(str(model.get("preset"))), {})
    kind = str(model.get("kind", sizes.get("kind")))
    if kind in MODELS.names() and (other := model_task(kind)) != task:
        raise ConfigError(f"{model.get('preset', kind)} is a model for {other}, not for {task}", hint)


def in_passes(passes: float) -> str:
    return f"about {passes:,.0f} passes" if passes >= 2 else f"about {passes:.2f} passes"


def tuning_tables(start: Path, old: Tables, method: Method) -> dict[str, Any]:
    """[tuning], and the [origin] of a base that came from elsewhere."""
    tuning = {"method": method, "base": str(start.resolve())}
    return {"tuning": tuning} | ({} if old.origin is None else {"origin": old.tables()["origin"]})


def tunable_outline(recipe: Tables) -> nn.Module:
    """The network without numbers. A method that it cannot take is refused here, before any data is read."""
    network = outline(recipe.model)
    if recipe.tuning is not None:
        refuse_method(network, recipe.tuning)
    return network


def gentle_training(lr: float, tokens: int, steps: int, n: int, request: Request) -> dict[str, Any]:
    """[optim], [schedule] and [train] of a fine-tuning, validated n times, though at most 15."""
    return {
        "optim": {"kind": "adamw", "lr": lr, "betas": [0.9, 0.999], "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup": request.steps(steps) // 10},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, min(n, 15)), "patience": 5, "ema": 0.0},
    }
