"""Batch norm, and units that saturate: eight layers of convolutions with relu, tanh or sigmoid, with and without norms.

    σ'(a) ≤ ¼,  tanh'(a) ≤ 1,  relu'(a) = 1 where a > 0        what a gradient is multiplied by, layer after layer
    norm(a) = γ (a − μ) / √(σ² + ε) + β                       keeps a where the slope is not 0   Ioffe & Szegedy 2015

Every matrix begins as its unit wants it (He et al. 2015). The pictures are gratings, sin(k·(x cos θ + y sin θ) + φ) in
noise, and the class is which of eight ways θ they run.
"""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.training.optim import OptimConfig

N, CLASSES, WIDTH, DEPTH = 9, 8, 12, 8
ROWS, STEPS, RATE = 64, 200, 0.1
LAST = 10  # steps whose mean is where a loss ends: one alone is noisy
Unit = Literal["relu", "tanh", "sigmoid"]
UNITS: dict[Unit, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def train(seed: int = 0) -> dict[str, Any]:
    """The numbers that `clearformer plot batch-norm` draws."""
    runs = {}
    for unit in UNITS:
        for has_norm in (False, True):
            torch.manual_seed(seed)
            name = f"{unit} with batch norm" if has_norm else unit
            runs[name] = learn(build(unit, has_norm), torch.Generator().manual_seed(seed))
    bare, normed = (fmean(runs[name]["loss"][-LAST:]) for name in ("sigmoid", "sigmoid with batch norm"))
    return {
        "title": f"Sigmoids {DEPTH} deep end at a loss of {bare:.2f} without batch norm, and of {normed:.2f} with it",
        "seed": seed,
        "chance": math.log(CLASSES),
        "runs": runs,
    }


def build(unit: Unit, has_norm: bool) -> nn.Sequential:
    """(B, 1, N, N) -> (B, CLASSES), by DEPTH convolutions and a mean over all places."""
    layers: list[nn.Module] = []
    for depth in range(DEPTH):
        conv = nn.Conv2d(WIDTH if depth else 1, WIDTH, 3, padding=1)
        nn.init.kaiming_normal_(conv.weight, nonlinearity=unit)
        layers += [conv, nn.BatchNorm2d(WIDTH), UNITS[unit]()] if has_norm else [conv, UNITS[unit]()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, CLASSES))


def learn(model: nn.Sequential, generator: torch.Generator) -> dict[str, list[float]]:
    """The loss at each step, and the norm of the first gradient at each convolution."""
    optimizer = OptimConfig(kind="momentum", lr=RATE, weight_decay=0.0).build(model)
    losses, slopes = [], []
    for step in range(STEPS):
        pictures, classes = gratings(ROWS, generator)
        loss = F.cross_entropy(model(pictures), classes)
        optimizer.zero_grad()
        loss.backward()
        if not step:
            slopes = [slope(module) for module in model if isinstance(module, nn.Conv2d)]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return {"loss": losses, "slope": slopes}


def slope(layer: nn.Conv2d) -> float:
    assert layer.weight.grad is not None
    return layer.weight.grad.norm().item()


def gratings(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, N, N), and which way they run (n,)."""
    classes = torch.randint(CLASSES, (n,), generator=generator)
    theta = (classes * math.pi / CLASSES)[:, None, None]
    pitch, phase = torch.rand(2, n, 1, 1, generator=generator)
    y, x = torch.meshgrid(torch.arange(N), torch.arange(N), indexing="ij")
    waves = torch.sin((0.7 + 0.7 * pitch) * (x * theta.cos() + y * theta.sin()) + 2 * math.pi * phase)
    return (waves + 0.3 * torch.randn(n, N, N, generator=generator))[:, None], classes
