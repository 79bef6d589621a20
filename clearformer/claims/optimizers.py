"""The notes' optimisers race: over surfaces that are hard in one way each, and to train a small network.

    gd, sgd, mini-batch    θ ← θ − ε ĝ,  ĝ the mean of ∇J_i over all N instances, one of them, a few
    momentum … adam        other rules for the same ĝ: training/optim.py

A surface is made the mean of N instances, J_i = f + c_i·θ with Σ c_i = 0. The rules from momentum on see the whole
gradient over surfaces, and mini-batches in the network, where all make the same number of passes over the data. Each
rule runs at every rate of RATES, and is shown at the one that was lowest along its race, by the mean of the height's
logarithm.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearformer.claims.surfaces import PLACES, Place, contours
from clearformer.training.optim import OptimConfig

N, MINI = 64, 8  # instances, and how many of them are a mini-batch
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
UPDATES = 80  # over a surface
PASSES = 40  # over the spirals
KINDS = {  # the name of a racer -> its kind in [optim]
    "gradient descent": "gd",
    "SGD": "sgd",
    "mini-batch": "sgd",
    "momentum": "momentum",
    "Nesterov": "nesterov",
    "AdaGrad": "adagrad",
    "RMSProp": "rmsprop",
    "Adam": "adam",
}


class Surface(nn.Module):
    """One point on a surface. Its loss on some instances is the height there, tilted by their mean c_i."""

    def __init__(self, place: Place, generator: torch.Generator) -> None:
        super().__init__()
        self.height = place.height
        self.point = nn.Parameter(torch.tensor(place.start, dtype=torch.float64))
        tilts = 0.5 * torch.randn(N, 2, generator=generator, dtype=torch.float64)
        self.tilts = tilts - tilts.mean(dim=0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.height(*self.point) + self.tilts[rows].mean(dim=0) @ self.point


class Spirals(nn.Module):
    """A small network and the two spirals that it learns to tell apart."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        turn = torch.linspace(0.25, 1.75, N // 2) * math.pi
        arm = torch.stack([turn * turn.cos(), turn * turn.sin()], dim=1) / 4
        self.points = torch.cat([arm, -arm]) + 0.05 * torch.randn(N, 2, generator=generator)
        self.classes = torch.arange(2).repeat_interleave(N // 2)
        self.network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
        for parameter in self.network.parameters():
            bound = 1 / math.sqrt(parameter.size(-1))
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, rows: Tensor) -> Tensor:
        return cross_entropy(self.network(self.points[rows]), self.classes[rows])


def race(seed: int = 0) -> dict[str, Any]:
    """Every racer on every course: the numbers that `clearformer plot optimizers` draws."""
    surfaces = {}
    for name, place in PLACES.items():
        batches = {racer: {"SGD": 1, "mini-batch": MINI}.get(racer, N) for racer in KINDS}
        runs = compete(partial(Surface, place), batches, UPDATES, dict.fromkeys(KINDS, 1), place.lowest, seed)
        surfaces[name] = {"equation": place.equation, "lowest": place.lowest, **contours(place), "runs": runs}
    batches = {racer: {"gradient descent": N, "SGD": 1}.get(racer, MINI) for racer in KINDS}
    runs = compete(Spirals, batches, PASSES, {racer: N // batch for racer, batch in batches.items()}, 0.0, seed)
    course = Spirals(seeded(seed))
    network = {
        "parameters": sum(p.numel() for p in course.parameters()),
        "points": course.points.tolist(),
        "classes": course.classes.tolist(),
        "runs": runs,
    }
    return {"title": title(runs), "seed": seed, "surfaces": surfaces, "network": network}


def title(runs: dict[str, Any]) -> str:
    ends = {racer: run["loss"][-1] for racer, run in runs.items()}
    best, plain = min(ends, key=ends.__getitem__), "gradient descent"
    return (
        f"In {PASSES} passes over two spirals {best} brings a network's loss to {ends[best]:.2g}, "
        f"{plain} to {ends[plain]:.2g}, each at its best rate"
    )


def compete(
    build: Callable[[torch.Generator], nn.Module],
    batches: dict[str, int],
    looks: int,
    every: dict[str, int],
    lowest: float,
    seed: int,
) -> dict[str, Any]:
    """The best of each racer's runs, one at each rate; a run that leaves the finite numbers is none."""

    def cost(one: dict[str, Any]) -> float:
        heights = [loss - lowest for loss in one["loss"]]
        return sum(math.log(max(h, 1e-6)) for h in heights) if all(map(math.isfinite, heights)) else math.inf

    return {
        racer: min(
            (
                run(build(seeded(seed)), OptimConfig(kind=kind, lr=lr), batches[racer], looks, every[racer], seed)
                for lr in RATES
            ),
            key=cost,
        )
        for racer, kind in KINDS.items()
    }


def run(course: nn.Module, rule: OptimConfig, batch: int, looks: int, every: int, seed: int) -> dict[str, Any]:
    """Look at the loss on all instances, make `every` updates on some of them, and so on; `looks` times and a last."""
    optimizer, batches, everything = rule.build(course), draw(batch, seeded(seed)), torch.arange(N)
    losses, path = [], []
    for update in range(looks * every + 1):
        if update % every == 0:
            with torch.no_grad():
                losses.append(course(everything).item())
            if isinstance(course, Surface):
                path.append(course.point.tolist())
        optimizer.zero_grad()
        course(next(batches)).backward()
        optimizer.step()
    return {"lr": rule.lr, "batch": batch, "loss": losses} | ({"path": path} if path else {})


def draw(batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches without end, pass after pass, each pass in a new order."""
    while True:
        yield from torch.randperm(N, generator=generator).split(batch)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
