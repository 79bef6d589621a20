"""Going on from a trained model, with texts or with pictures: few passes, at a gentle rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.auto.bounds import steps_asked
from clearformer.recipe import Recipe, build_model
from clearformer.training.loop import rounds
from clearformer.tuning.methods import Method, tune


def built_on(start: Path, old: Recipe, method: Method) -> dict[str, Any]:
    """[tuning], and the [origin] of a base that came from elsewhere."""
    tuning = {"method": method, "base": str(start.resolve())}
    return {"tuning": tuning} | ({} if old.origin is None else {"origin": old.tables()["origin"]})


def tuned_outline(recipe: Recipe) -> nn.Module:
    """The network without numbers, as its [tuning] changes it: what it cannot take is refused before data is read."""
    assert recipe.tuning is not None
    network = outline(recipe.model)
    tune(network, recipe.tuning)
    return network


def outline(config: Any) -> nn.Module:
    """The network without numbers, on torch's meta device."""
    with torch.device("meta"):
        return build_model(config)


def gentle(lr: float, tokens: int, steps: int, n: int, settings: Sequence[str]) -> dict[str, Any]:
    """[optim], [schedule] and [train]: validated n times, such as after every pass, though at most 15 times."""
    return {
        "optim": {"kind": "adamw", "lr": lr, "betas": [0.9, 0.999], "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup": steps_asked(settings, steps) // 10},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, min(n, 15)), "patience": 5, "ema": 0.0},
    }
