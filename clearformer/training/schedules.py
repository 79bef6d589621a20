"""The learning rate as a pure function of the step, so that a resumed run needs no scheduler state.

rate(k) = lr · min(1, k / warmup) · decay(k),   k = 1, 2, …

inverse-sqrt   decay = √(w / k) after the warm-up w                      Vaswani et al. 2017
linear         decay = (1 − α) + α · floor,  α = k / steps               course notes: ε_k = (1−α) ε_0 + α ε_T
inverse-time   decay = 1 / (1 + k / half)                                Σ ε_k = ∞, Σ ε_k² < ∞  (Robbins–Monro)
cosine         decay = floor + (1 − floor) (1 + cos πα) / 2
stairs         decay = γ^max(0, e − hold) on the e-th stair, e = 1, 2, …        Zaremba et al. 2014, one stair per epoch
constant       decay = 1
"""

import math
from typing import Literal

from pydantic import Field

from clearformer.config import Config


class ScheduleConfig(Config):
    """The [schedule] table of a recipe: the learning rate by step."""

    kind: Literal["inverse-sqrt", "linear", "inverse-time", "cosine", "stairs", "constant"] = "inverse-sqrt"
    warmup: int = Field(1000, ge=0, description="steps of linear warm-up")
    steps: int | None = Field(
        None, description="step at which linear and cosine reach the floor; default: the last step of the run"
    )
    floor: float = Field(
        0.0, ge=0, le=1, description="final learning rate of linear and cosine, as a fraction of optim.lr"
    )
    half: int = Field(1000, gt=0, description="inverse-time: steps after which the learning rate is halved")
    stair: int = Field(1000, gt=0, description="stairs: steps per stair")
    hold: int = Field(1, ge=0, description="stairs: number of stairs at the full learning rate, before the decay")
    gamma: float = Field(
        0.5, gt=0, le=1, description="stairs: factor between the learning rates of one stair and the next"
    )

    def factor(self, k: int, steps: float) -> float:
        """The factor that multiplies lr at a step, counted from 1; `steps` is the number of steps of the run."""
        rise = min(1.0, k / self.warmup) if self.warmup else 1.0
        progress = min(1.0, k / (self.steps or steps))
        match self.kind:
            case "inverse-sqrt":
                decay = math.sqrt(max(self.warmup, 1) / max(k, self.warmup, 1))
            case "linear":
                decay = (1 - progress) + progress * self.floor
            case "inverse-time":
                decay = 1 / (1 + k / self.half)
            case "cosine":
                decay = self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2
            case "stairs":
                decay = self.gamma ** max(0, 1 + (k - 1) // self.stair - self.hold)
            case "constant":
                decay = 1.0
        return rise * decay
