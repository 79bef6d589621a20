"""Internal covariate shift, and the shift between training and test data that it is named after.

Internal: the distribution of a layer's pre-activations differs from one mini-batch to the next, and moves while the
weights below it are trained. Both are measured in every layer, in deviations, and are means over its units:

    between = std over mini-batches of μ_B / σ_B          at fixed weights; 1/√B if images are independent
    shift   = |μ_t − μ_0| / √((σ_t² + σ_0²) / 2)          on one fixed batch, by training    Ioffe & Szegedy 2015

Between training and test: roses are red in training and white in the test ("covariate shift"). A network tells gratings
of two directions apart; the first class, the roses, is coloured. Three seeds; no norm, batch norm and layer norm. All
weights have He's initialisation, so that the signal reaches the last layer without a norm, too.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.batch_norm import CLASSES, N, gratings
from clearformer.claims.panels import mean_over, panel
from clearformer.training.optim import OptimConfig

DEPTH, WIDTH, ROWS, STEPS, RATE, SEEDS, TESTS = 5, 48, 64, 150, 0.05, 3, 512
BATCHES = 40  # mini-batches that are compared at fixed weights
PERCENTILES = (15, 50, 85)  # of one unit in the mini-batch of each step, as in Ioffe & Szegedy 2015, figure 1
SHADES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # from red roses to white ones
NORMS = {"no norm": nn.Identity, "batch norm": nn.BatchNorm1d, "layer norm": nn.LayerNorm}
RED, WHITE = (1.0, 0.0, 0.0), (1.0, 1.0, 1.0)


class Network(nn.Module):
    """DEPTH layers, relu(norm(W h + b)), and a head."""

    def __init__(self, n_inputs: int, n_classes: int, norm: Any) -> None:
        super().__init__()
        widths = [n_inputs, *[WIDTH] * DEPTH]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, n_classes)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits, and the input of the activation in each layer, (B, WIDTH)."""
        h, seen = images.flatten(1), []
        for layer, norm in zip(self.layers, self.norms):
            seen.append(norm(layer(h)))
            h = F.relu(seen[-1])
        return self.head(h), seen


def build(n_inputs: int, n_classes: int, norm: Any, seed: int) -> Network:
    """Build a network with He's initialisation, which keeps the deviation of the signal from layer to layer."""
    torch.manual_seed(seed)
    model = Network(n_inputs, n_classes, norm)
    layers: Any = model.layers
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return model


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot covariate-shift` shows."""
    runs = {name: [watch(norm, seed + k) for k in range(SEEDS)] for name, norm in NORMS.items()}
    losses = {name: mean_over([run["loss"] for run in some]) for name, some in runs.items()}
    shifts, between = (
        {name: mean_over([run[key] for run in some]) for name, some in runs.items()} for key in ("shift", "between")
    )
    accuracy = {name: [roses(norm, seed + k) for k in range(SEEDS)] for name, norm in NORMS.items()}
    recognised = {name: mean_over(lines) for name, lines in accuracy.items()}
    panels = [
        panel(
            f"unit of layer {layer + 1} in each mini-batch, {name}", "step", "input of relu",
            {f"{p}th percentile": line for p, line in zip(PERCENTILES, zip(*runs[name][0]["percentiles"][layer]))},
            range(STEPS),
        )
        for layer in (0, DEPTH - 1) for name in NORMS
    ]  # fmt: skip
    layers = range(1, DEPTH + 1)
    panels.append(panel("shift of the mean in training", "layer", "deviations", shifts, layers))
    panels.append(panel("training loss", "step", "loss", losses, range(STEPS)))
    panels.append(panel("roses recognised, trained on red ones", "0 red, 1 white", "accuracy", recognised, SHADES))

    moved, white = ([values[name][-1] for name in NORMS] for values in (shifts, recognised))
    return {
        "title": f"The last layer's means move by {moved[0]:.2f} deviations without a norm, {moved[1]:.2f} with batch "
        f"norm, {moved[2]:.2f} with layer norm; white roses recognised: {white[0]:.0%}, {white[1]:.0%}, {white[2]:.0%}",
        "seed": seed,
        "seeds": SEEDS,
        "between_minibatches": between,
        "shift": shifts,
        "shift_by_seed": {name: [run["shift"] for run in some] for name, some in runs.items()},
        "loss": {name: fmean(line[-10:]) for name, line in losses.items()},
        "loss_by_seed": {name: [fmean(run["loss"][-10:]) for run in some] for name, some in runs.items()},
        "roses": {name: {"red": line[0], "white": line[-1]} for name, line in recognised.items()},
        "white_by_seed": {name: [line[-1] for line in lines] for name, lines in accuracy.items()},
        "panels": panels,
    }


def watch(norm: Any, seed: int) -> dict[str, Any]:
    """Train on gratings. Returns the loss of each step, and of each layer percentiles, `between` and `shift`."""
    generator = torch.Generator().manual_seed(seed)
    model = build(N * N, CLASSES, norm, seed)
    optimizer = OptimConfig(kind="momentum", lr=RATE).build(model)
    probe, _ = gratings(256, generator)
    ranks = torch.tensor(PERCENTILES) / 100
    losses: list[float] = []
    percentiles: list[list[list[float]]] = [[] for _ in range(DEPTH)]
    first = pre_activations(model, probe)
    for _ in range(STEPS):
        images, classes = gratings(ROWS, generator)
        logits, seen = model(images)
        for lines, layer in zip(percentiles, seen):
            lines.append(layer[:, 0].detach().quantile(ranks).tolist())
        loss = F.cross_entropy(logits, classes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    last = pre_activations(model, probe)
    batches = [pre_activations(model, gratings(ROWS, generator)[0]) for _ in range(BATCHES)]
    return {
        "loss": losses,
        "percentiles": percentiles,
        "shift": [shift_of(before, after) for before, after in zip(first, last)],
        "between": [between(layer) for layer in zip(*batches)],
    }


def pre_activations(model: Network, images: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return model(images)[1]


def shift_of(before: Tensor, after: Tensor) -> float:
    """Return how far the mean of a unit has moved, in deviations, on average over the units of (B, WIDTH).

    The deviation is the one of both times. That of the start alone can be close to zero, and the quotient very large.
    """
    deviation = ((before.var(0) + after.var(0)) / 2).sqrt()
    return float(((after.mean(0) - before.mean(0)).abs() / (deviation + 1e-6)).mean())


def between(batches: Sequence[Tensor]) -> float:
    """Return how much the mean of a unit varies from mini-batch to mini-batch, in deviations within one."""
    means = torch.stack([batch.mean(0) for batch in batches])  # (BATCHES, WIDTH)
    deviation = torch.stack([batch.std(0) for batch in batches]).mean(0)
    return float((means.std(0) / (deviation + 1e-6)).mean())


def roses(norm: Any, seed: int) -> list[float]:
    """Train with red roses; returns the accuracy on roses of each shade. All other pictures are white."""
    generator = torch.Generator().manual_seed(seed)
    model = build(3 * N * N, 2, norm, seed)
    optimizer = OptimConfig(kind="momentum", lr=RATE).build(model)
    for _ in range(STEPS):
        images, is_rose = pictures(ROWS, RED, generator)
        loss = F.cross_entropy(model(images)[0], is_rose)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    results = []
    with torch.no_grad():
        for shade in SHADES:
            colour = tuple(r + shade * (w - r) for r, w in zip(RED, WHITE))
            images, is_rose = pictures(TESTS, colour, torch.Generator().manual_seed(seed + 1000))
            predicted = model(images)[0].argmax(1)
            results.append(float((predicted == is_rose)[is_rose == 1].float().mean()))
    return results


def pictures(n: int, colour: tuple[float, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return images (n, 3, N, N) and whether each is a rose: a grating of the first four directions, of that colour."""
    grey, classes = gratings(n, generator)
    is_rose = (classes < 4).long()
    paint = torch.where(is_rose[:, None] == 1, torch.tensor(colour), torch.tensor(WHITE))  # (n, 3)
    return grey * paint[:, :, None, None], is_rose
