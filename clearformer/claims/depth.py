"""Depth without shortcuts: what initialisation does to a signal, and what batch norm makes of it.

    h ← relu(norm(W h))            plain                 h ← h + relu(norm(W h))            with shortcuts

    W ~ N(0, 1/fan)                Glorot & Bengio 2010 ("Xavier"): keeps the variance of a linear layer
    W ~ N(0, 2/fan)                He et al. 2015: makes up for the half that relu cuts off
    W ~ N(0, 0.01²)                small numbers of any kind

The deviation of h by layer and the gradient by layer are measured before training; then each network learns the
gratings of batch_norm.py. All values are means over three seeds.
"""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.batch_norm import CLASSES, N, gratings
from clearformer.claims.panels import mean_over, panel
from clearformer.training.optim import OptimConfig

DEPTH, WIDTH, ROWS, STEPS, RATE, SEEDS, LAST = 30, 48, 64, 120, 0.01, 3, 10
STARTS: dict[str, Callable[[Tensor], Any]] = {
    "0.01": lambda w: nn.init.normal_(w, std=0.01),
    "Xavier": nn.init.xavier_normal_,
    "He": lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"),
}
BOTH = "batch norm and shortcuts"
FORMS = {"plain": (False, False), "batch norm": (True, False), "shortcuts": (False, True), BOTH: (True, True)}


class Deep(nn.Module):
    """DEPTH layers of one width between an input and an output layer."""

    def __init__(self, start: str, has_norm: bool, has_shortcuts: bool) -> None:
        super().__init__()
        self.has_shortcuts = has_shortcuts
        self.inputs, self.outputs = nn.Linear(N * N, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) if has_norm else nn.Identity() for _ in range(DEPTH))
        layers: Any = self.layers
        for layer in layers:
            STARTS[start](layer.weight)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits (B, CLASSES) and the output of every layer, (B, WIDTH) each."""
        h, seen = F.relu(self.inputs(images.flatten(1))), []
        for layer, norm in zip(self.layers, self.norms):
            new = F.relu(norm(layer(h)))
            h = h + new if self.has_shortcuts else new
            seen.append(h)
        return self.outputs(h), seen


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot depth` shows."""
    runs = {
        f"{start}, {form}": [measure(start, *switches, seed + k) for k in range(SEEDS)]
        for form, switches in FORMS.items()
        for start in STARTS
    }
    means = {
        key: {name: mean_over([run[key] for run in some]) for name, some in runs.items()}
        for key in ("deviation", "gradient", "loss")
    }
    ends = {name: fmean(line[-LAST:]) for name, line in means["loss"].items()}
    layers, steps = range(1, DEPTH + 1), range(1, STEPS + 1)
    panels = [
        panel(f"{up}, {form}", "layer", up, pick(means[key], form), layers, is_log=key == "gradient" or form == "plain")
        for key, up in (("deviation", "deviation of h"), ("gradient", "gradient norm"))
        for form in ("plain", "batch norm", BOTH)
    ]
    panels += [
        panel(f"training loss, {form}", "step", "loss", pick(means["loss"], form), steps)
        for form in ("plain", "batch norm", BOTH)
    ]
    plain, he = means["deviation"]["Xavier, plain"][-1], means["deviation"]["He, plain"][-1]
    return {
        "title": f"After {DEPTH} plain layers the deviation is {plain:.1g} with Xavier, {he:.1g} with He. Loss with He "
        f"after {STEPS} steps: plain {ends['He, plain']:.2f}, batch norm {ends['He, batch norm']:.2f}, both "
        f"{ends[f'He, {BOTH}']:.2f}",
        "seed": seed,
        "seeds": SEEDS,
        "chance": math.log(CLASSES),
        "loss": ends,
        "loss_by_seed": {name: [fmean(run["loss"][-LAST:]) for run in some] for name, some in runs.items()},
        "last_deviation": {name: line[-1] for name, line in means["deviation"].items()},
        "first_gradient": {name: line[0] for name, line in means["gradient"].items()},
        "panels": panels,
    }


def pick(lines: dict[str, list[float]], form: str) -> dict[str, list[float]]:
    return {name.split(",")[0]: line for name, line in lines.items() if name.endswith(f", {form}")}


def measure(start: str, has_norm: bool, has_shortcuts: bool, seed: int) -> dict[str, list[float]]:
    """Return the deviation and the gradient norm of each layer before training, and the loss of each step."""
    torch.manual_seed(seed)
    model, generator = Deep(start, has_norm, has_shortcuts), torch.Generator().manual_seed(seed)
    optimizer = OptimConfig(kind="momentum", lr=RATE).build(model)
    losses, deviation, gradient = [], [], []
    for step in range(STEPS):
        images, classes = gratings(ROWS, generator)
        logits, seen = model(images)
        loss = F.cross_entropy(logits, classes)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            deviation = [h.std().item() for h in seen]
            layers: Any = model.layers
            gradient = [layer.weight.grad.norm().item() for layer in layers]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return {"deviation": deviation, "gradient": gradient, "loss": losses}
