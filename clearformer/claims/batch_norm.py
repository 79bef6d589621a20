"""Batch norm and saturating activations: eight convolutions with relu, tanh or sigmoid, with and without batch norm.

    σ'(a) ≤ ¼,  tanh'(a) ≤ 1,  relu'(a) = 1 where a > 0        factor of the gradient at each layer
    norm(a) = γ (a − μ) / √(σ² + ε) + β                       keeps a where the slope is not 0   Ioffe & Szegedy 2015

Weights are initialised for their activation (He et al. 2015). The images are noisy gratings, sin(k·(x cos θ + y sin θ)
+ φ), and the class is the direction θ, one of eight.
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
LAST = 10  # last steps over which the final loss is averaged, since a single step is noisy
Unit = Literal["relu", "tanh", "sigmoid"]
UNITS: dict[Unit, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def train(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot batch-norm` shows."""
    runs = {}
    for unit in UNITS:
        for has_norm in (False, True):
            torch.manual_seed(seed)
            name = f"{unit} with batch norm" if has_norm else unit
            runs[name] = learn(build(unit, has_norm), torch.Generator().manual_seed(seed))
    bare, normed = (fmean(runs[name]["loss"][-LAST:]) for name in ("sigmoid", "sigmoid with batch norm"))
    return {
        "title": f"Sigmoid network of depth {DEPTH}: loss {bare:.2f} without batch norm, {normed:.2f} with it",
        "seed": seed,
        "chance": math.log(CLASSES),
        "runs": runs,
    }


def build(unit: Unit, has_norm: bool) -> nn.Sequential:
    """Build DEPTH convolutions, global average pooling and a linear head: (B, 1, N, N) -> (B, CLASSES)."""
    layers: list[nn.Module] = []
    for depth in range(DEPTH):
        conv = nn.Conv2d(WIDTH if depth else 1, WIDTH, 3, padding=1)
        nn.init.kaiming_normal_(conv.weight, nonlinearity=unit)
        layers += [conv, nn.BatchNorm2d(WIDTH), UNITS[unit]()] if has_norm else [conv, UNITS[unit]()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, CLASSES))


def learn(model: nn.Sequential, generator: torch.Generator) -> dict[str, list[float]]:
    """Train a model; returns the loss at each step, and the gradient norm of each convolution at the first step."""
    optimizer = OptimConfig(kind="momentum", lr=RATE, weight_decay=0.0).build(model)
    losses, slopes = [], []
    for step in range(STEPS):
        images, classes = gratings(ROWS, generator)
        loss = F.cross_entropy(model(images), classes)
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
    """Draw n gratings; returns images (n, 1, N, N) and the classes of their directions (n,)."""
    classes = torch.randint(CLASSES, (n,), generator=generator)
    theta = (classes * math.pi / CLASSES)[:, None, None]
    pitch, phase = torch.rand(2, n, 1, 1, generator=generator)
    y, x = torch.meshgrid(torch.arange(N), torch.arange(N), indexing="ij")
    waves = torch.sin((0.7 + 0.7 * pitch) * (x * theta.cos() + y * theta.sin()) + 2 * math.pi * phase)
    return (waves + 0.3 * torch.randn(n, N, N, generator=generator))[:, None], classes
