"""A comparison of the optimisers in the course notes, on three difficult surfaces and on a small network.

    gd, sgd, mini-batch    θ ← θ − ε ĝ,  where ĝ is the mean of ∇J_i over all N instances, one instance or a few
    momentum … adam        other update rules for the same ĝ: training/optim.py

A surface is the mean of N instances, J_i = f + c_i·θ with Σ c_i = 0. From momentum on, the optimisers use the full
gradient on surfaces and mini-batches for the network, where all train for the same number of epochs. Each optimiser
runs at every learning rate of RATES; its best run, by the mean logarithm of the height, is shown.
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

N, MINI = 64, 8  # instances, instances per mini-batch
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
UPDATES = 80  # on a surface
EPOCHS = 40  # on the spirals
KINDS = {  # the name in the figure -> optim.kind
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
    """A point on a surface. Its loss on some instances is the height plus the mean of c_i·θ over these instances."""

    def __init__(self, place: Place, generator: torch.Generator) -> None:
        super().__init__()
        self.height = place.height
        self.point = nn.Parameter(torch.tensor(place.start, dtype=torch.float64))
        tilts = 0.5 * torch.randn(N, 2, generator=generator, dtype=torch.float64)
        self.tilts = tilts - tilts.mean(dim=0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.height(*self.point) + self.tilts[rows].mean(dim=0) @ self.point


class Spirals(nn.Module):
    """A small network that learns to classify the points of two spirals."""

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
    """Return the data that `clearformer plot optimizers` shows."""
    surfaces = {}
    for name, place in PLACES.items():
        batches = {label: {"SGD": 1, "mini-batch": MINI}.get(label, N) for label in KINDS}
        runs = compete(partial(Surface, place), batches, UPDATES, dict.fromkeys(KINDS, 1), place.lowest, seed)
        surfaces[name] = {"equation": place.equation, "lowest": place.lowest, **contours(place), "runs": runs}
    batches = {label: {"gradient descent": N, "SGD": 1}.get(label, MINI) for label in KINDS}
    runs = compete(Spirals, batches, EPOCHS, {label: N // batch for label, batch in batches.items()}, 0.0, seed)
    course = Spirals(seeded(seed))
    network = {
        "parameters": sum(p.numel() for p in course.parameters()),
        "points": course.points.tolist(),
        "classes": course.classes.tolist(),
        "runs": runs,
    }
    return {"title": title(runs), "seed": seed, "surfaces": surfaces, "network": network}


def title(runs: dict[str, Any]) -> str:
    ends = {label: run["loss"][-1] for label, run in runs.items()}
    best, plain = min(ends, key=ends.__getitem__), "gradient descent"
    return (
        f"After {EPOCHS} epochs on two spirals, the loss is {ends[best]:.2g} with {best} and {ends[plain]:.2g} "
        f"with {plain}, each at its best learning rate"
    )


def compete(
    build: Callable[[torch.Generator], nn.Module],
    batches: dict[str, int],
    n_records: int,
    updates: dict[str, int],
    lowest: float,
    seed: int,
) -> dict[str, Any]:
    """Return the best run of each optimiser over all learning rates; runs with non-finite losses are excluded."""

    def cost(result: dict[str, Any]) -> float:
        heights = [loss - lowest for loss in result["loss"]]
        return sum(math.log(max(h, 1e-6)) for h in heights) if all(map(math.isfinite, heights)) else math.inf

    return {
        label: min(
            (
                run(build(seeded(seed)), OptimConfig(kind=kind, lr=lr), batches[label], n_records, updates[label], seed)
                for lr in RATES
            ),
            key=cost,
        )
        for label, kind in KINDS.items()
    }


def run(course: nn.Module, rule: OptimConfig, batch: int, n_records: int, updates: int, seed: int) -> dict[str, Any]:
    """Train, and record the loss on all instances at the start and `n_records` times, after every `updates` updates."""
    optimizer, batches, everything = rule.build(course), draw(batch, seeded(seed)), torch.arange(N)
    losses, path = [], []
    for update in range(n_records * updates + 1):
        if update % updates == 0:
            with torch.no_grad():
                losses.append(course(everything).item())
            if isinstance(course, Surface):
                path.append(course.point.tolist())
        optimizer.zero_grad()
        course(next(batches)).backward()
        optimizer.step()
    return {"lr": rule.lr, "batch": batch, "loss": losses} | ({"path": path} if path else {})


def draw(batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of instances without end, in a new order in each epoch."""
    while True:
        yield from torch.randperm(N, generator=generator).split(batch)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
