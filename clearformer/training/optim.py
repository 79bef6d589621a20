"""The optimisers of the course notes by name, as implemented in torch.optim.

sgd (gd)    θ ← θ − ε g                      momentum   v ← μ v + g,  θ ← θ − ε v
nesterov    momentum, looking ahead          adagrad    θ ← θ − ε g / (√(Σ g²) + δ)
rmsprop     θ ← θ − ε g / (√r + δ),  r ← ρ r + (1−ρ) g²
adam        θ ← θ − ε m̂ / (√v̂ + δ),  m̂ = m / (1 − β1^t),  v̂ = v / (1 − β2^t)    Kingma & Ba 2015
adamw       adam with weight decay decoupled from the gradient                    Loshchilov & Hutter 2019
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.checkpoint import Stored, like, loaded
from clearformer.config import Config

Decay = Annotated[float, Field(ge=0, lt=1)]  # the weight of the past in a running average


class OptimConfig(Config):
    """The [optim] table of a recipe: the optimiser and its settings."""

    kind: Literal["gd", "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"] = "adam"
    lr: float = Field(1e-3, gt=0, le=1e6, description="peak learning rate; the schedule scales it")
    betas: tuple[Decay, Decay] = Field((0.9, 0.98), description="adam: decay rates of the two moment estimates")
    eps: float = Field(1e-8, gt=0, le=1, description="adam, rmsprop, adagrad: constant added to the denominator")
    momentum: Decay = Field(0.9, description="momentum coefficient of momentum and nesterov")
    rho: Decay = Field(0.99, description="rmsprop: decay rate of the mean squared gradient")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="weight decay of matrices; biases and gains have none")

    def model_post_init(self, _: object) -> None:
        if self.kind == "nesterov" and not self.momentum:
            raise ValueError('kind = "nesterov" needs a momentum greater than 0; without momentum, use kind = "sgd"')

    @property
    def has_fused_kernel(self) -> bool:
        """Whether torch updates all weights with one CUDA kernel, which can read the learning rate from a tensor."""
        return self.kind not in ("adagrad", "rmsprop")

    def build(self, model: nn.Module, is_recorded: bool = False) -> Optimizer:
        """Build the optimiser; weight decay applies to matrices, not to vectors such as biases and gains.

        `is_recorded` prepares it for steps that are recorded as CUDA graphs.
        """
        parameters = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        is_cuda = any(p.is_cuda for p in parameters)
        fused: dict[str, Any] = {"fused": True} if is_cuda else {"foreach": True}
        adam = {"betas": self.betas, "eps": self.eps, **fused}
        sgd = fused if is_recorded else {}
        makers: dict[str, Callable[[], Optimizer]] = {
            "gd": lambda: torch.optim.SGD(groups, self.lr, **sgd),
            "sgd": lambda: torch.optim.SGD(groups, self.lr, **sgd),
            "momentum": lambda: torch.optim.SGD(groups, self.lr, self.momentum, **sgd),
            "nesterov": lambda: torch.optim.SGD(groups, self.lr, self.momentum, nesterov=True, **sgd),
            "adagrad": lambda: torch.optim.Adagrad(groups, self.lr, eps=self.eps),
            "rmsprop": lambda: torch.optim.RMSprop(groups, self.lr, alpha=self.rho, eps=self.eps),
            "adam": lambda: torch.optim.Adam(groups, self.lr, **adam),
            "adamw": lambda: torch.optim.AdamW(groups, self.lr, **adam),
        }
        optimizer = makers[self.kind]()
        if is_recorded:
            make_recordable(optimizer, parameters[0].device)
        return optimizer


def make_recordable(optimizer: Optimizer, device: torch.device) -> None:
    """Keep the learning rate in a tensor, so that a CUDA graph reads the rate of each step."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)
        if "capturable" in group:
            group["capturable"] = True


def is_recordable(optimizer: Optimizer) -> bool:
    """Whether a CUDA graph of a step follows the learning rate."""
    return all(isinstance(group["lr"], Tensor) for group in optimizer.param_groups)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def state_of(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of the optimiser as <slot>.<parameter>, without its settings, which are in the recipe."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{slot}.{names[id(p)]}": torch.as_tensor(value)
        for p, slots in optimizer.state.items()
        for slot, value in slots.items()
        if value is not None
    }


def load_state(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor | Stored]) -> None:
    """The inverse of `state_of`. torch moves each tensor to the device that the optimiser's kernel needs."""
    names = {id(p): name for name, p in model.named_parameters()}
    order = [p for group in optimizer.param_groups for p in group["params"]]
    place = {names[id(p)]: (i, p) for i, p in enumerate(order)}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        slot, name = key.split(".", 1)
        i, p = place[name]
        state.setdefault(i, {})[slot] = like(tensor, p) if tensor.shape == p.shape else loaded(tensor)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
