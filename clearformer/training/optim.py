"""The optimisers of the notes, by name, as torch.optim has them.

sgd (gd)    θ ← θ − ε g                      momentum   v ← μ v + g,  θ ← θ − ε v
nesterov    momentum, looking ahead          adagrad    θ ← θ − ε g / √(Σ g²)
rmsprop     θ ← θ − ε g / √(r),  r ← ρ r + (1−ρ) g²
adam        m̂ / (√v̂ + δ),  m̂ = m / (1 − β1^t),  v̂ = v / (1 − β2^t)          Kingma & Ba 2015
adamw       adam, and weights decay towards 0 apart from the gradient          Loshchilov & Hutter 2019
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.optim import Optimizer

from clearformer.config import Config


class OptimConfig(Config):
    """[optim]"""

    kind: Literal["gd", "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"] = "adam"
    lr: float = Field(1e-3, gt=0, description="the peak; the schedule scales it")
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    rho: float = Field(0.99, ge=0, lt=1, description="how slowly rmsprop forgets")
    weight_decay: float = Field(0.0, ge=0)

    def build(self, model: nn.Module) -> Optimizer:
        """One group of matrices that decay, one of vectors (biases, gains) that do not."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        is_cuda = any(p.is_cuda for p in parameters)
        fused: dict[str, Any] = {"fused": True} if is_cuda else {"foreach": True}
        adam = {"betas": self.betas, "eps": self.eps, **fused}
        makers: dict[str, Callable[[], Optimizer]] = {
            "gd": lambda: torch.optim.SGD(groups, self.lr),
            "sgd": lambda: torch.optim.SGD(groups, self.lr),
            "momentum": lambda: torch.optim.SGD(groups, self.lr, self.momentum),
            "nesterov": lambda: torch.optim.SGD(groups, self.lr, self.momentum, nesterov=True),
            "adagrad": lambda: torch.optim.Adagrad(groups, self.lr, eps=self.eps),
            "rmsprop": lambda: torch.optim.RMSprop(groups, self.lr, alpha=self.rho, eps=self.eps),
            "adam": lambda: torch.optim.Adam(groups, self.lr, **adam),
            "adamw": lambda: torch.optim.AdamW(groups, self.lr, **adam),
        }
        return makers[self.kind]()


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
