"""A classifier on a trained model, be it of texts or of pictures: few passes, at a gentle rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.auto.bounds import steps_asked
from clearformer.recipe import Recipe
from clearformer.training.loop import rounds
from clearformer.tuning.methods import Method


def built_on(start: Path, old: Recipe, method: Method) -> dict[str, Any]:
    """[tuning], and the [origin] of a base that came from elsewhere."""
    tuning = {"method": method, "base": str(start.resolve())}
    return {"tuning": tuning} | ({} if old.origin is None else {"origin": old.tables()["origin"]})


def gentle(lr: float, tokens: int, steps: int, passes: int, settings: Sequence[str]) -> dict[str, Any]:
    """[optim], [schedule] and [train]: validated after every pass, though at most 15 times."""
    return {
        "optim": {"kind": "adamw", "lr": lr, "betas": [0.9, 0.999], "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup": steps_asked(settings, steps) // 10},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, min(passes, 15)), "patience": 5, "ema": 0.0},
    }
