"""Rates that are too large or too small, AdaGrad's steps, which die out, and how an average forgets the past.

    θ ← θ − ε θ                    descent on J = ½ θ²: it shrinks by |1 − ε|, oscillates from ε = 1, diverges from 2
    ε / √(Σ_t g_t²)                AdaGrad divides by all past gradients: on a constant slope a step is ε / √t
    (1 − β) β^k                    weight of the gradient k updates ago in a moving average; the first t have 1 − β^t

The optimisers are those of training/optim.py.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.claims.panels import panel
from clearformer.training.optim import OptimConfig

UPDATES = 200
RHO = 0.9  # of RMSProp, which then forgets a gradient after some ten updates
RATES = (0.02, 0.3, 1.0, 1.9, 2.05)
SHOWN = 40  # updates on the bowl, and gradients of the past
STEEP, CLIFF = 100.0, 5  # slope of the first updates on the second course, and their number
BETAS = (0.5, 0.9, 0.99)


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot rates` shows. Nothing in it is random."""
    bowl = {f"ε = {rate:g}": descend("gd", rate, lambda theta, t: theta)[: SHOWN + 1] for rate in RATES}
    kinds = {"gradient descent": "gd", "AdaGrad": "adagrad", "RMSProp": "rmsprop", "Adam": "adam"}
    slope = {
        name: lengths(descend(kind, 0.1, lambda theta, t: -torch.ones_like(theta))) for name, kind in kinds.items()
    }
    cliff = {
        name: lengths(descend(kind, 0.1, lambda theta, t: -torch.full_like(theta, STEEP if t < CLIFF else 1.0)))
        for name, kind in kinds.items()
        if kind != "gd"
    }
    ages, moved = range(SHOWN + 1), range(1, UPDATES + 1)
    weights = {f"β = {beta:g}": [(1 - beta) * beta**k for k in ages] for beta in BETAS}
    total = {f"β = {beta:g}": [1 - beta ** (t + 1) for t in ages] for beta in BETAS}
    slow, wild = bowl["ε = 0.02"][-1], abs(bowl["ε = 2.05"][-1])
    stalled, steady = slope["AdaGrad"][-1], slope["RMSProp"][-1]
    return {
        "title": f"On ½ θ² after {SHOWN} updates, |θ| = {slow:.2g} with ε = 0.02 and {wild:.2g} with ε = 2.05; after "
        f"{UPDATES} on a slope, a step of 0.1 is {stalled:.2g} with AdaGrad and {steady:.2g} with RMSProp",
        "seed": seed,
        "ends": {"bowl": {name: line[-1] for name, line in bowl.items()}},
        "last_step": {
            "slope": {name: line[-1] for name, line in slope.items()},
            "after a cliff": {name: line[-1] for name, line in cliff.items()},
        },
        "panels": [
            panel("descent on ½ θ², from θ = 1", "update", "θ", bowl, ages),
            panel("constant slope, ε = 0.1", "update", "length of the step", slope, moved, is_log=True),
            panel(
                f"{CLIFF} updates {STEEP:g} times as steep", "update", "length of the step", cliff, moved, is_log=True
            ),
            panel("weight of the gradient k updates ago", "k", "(1 − β) β^k", weights, ages),
            panel("sum of the first weights", "update", "1 − β^t", total, ages),
        ],
    }


def descend(kind: Any, rate: float, gradient: Any) -> list[float]:
    """Return the positions of one parameter that starts at 1 and moves by an optimiser; gradient(θ, t) is its slope."""
    model = nn.Linear(1, 1, bias=False).double()
    weight: Tensor = model.weight
    with torch.no_grad():
        weight.fill_(1.0)
    optimizer = OptimConfig(kind=kind, lr=rate, rho=RHO).build(model)
    positions = [weight.item()]
    for t in range(UPDATES):
        weight.grad = gradient(weight.detach(), t).clone()
        optimizer.step()
        positions.append(weight.item())
    return positions


def lengths(positions: list[float]) -> list[float]:
    return [abs(after - before) for before, after in pairwise(positions)]
