"""Internal covariate shift, and the shift between training and test data that it is named after.

Internal: while the weights below a layer are trained, the distribution of its pre-activations moves. It is watched on
one fixed batch, in every layer, by the distance of each unit's mean from its mean at the start, in deviations:

    shift_t = mean over units of |μ_t − μ_0| / σ_0                               Ioffe & Szegedy 2015

Between training and test: roses are red in training and white in the test ("covariate shift"). A network tells gratings
of two directions apart; the first class, the roses, is coloured. Three seeds; no norm, batch norm and layer norm.
"""

from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.batch_norm import N, gratings
from clearformer.claims.panels import mean_over, panel
from clearformer.training.optim import OptimConfig

DEPTH, WIDTH, ROWS, STEPS, RATE, SEEDS, TESTS = 5, 48, 64, 150, 0.05, 3, 512
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


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot covariate-shift` shows."""
    runs = {name: [watch(norm, seed + k) for k in range(SEEDS)] for name, norm in NORMS.items()}
    losses = {name: mean_over([run["loss"] for run in some]) for name, some in runs.items()}
    shifts = {
        name: [mean_over([run["shift"][layer] for run in some]) for layer in range(DEPTH)]
        for name, some in runs.items()
    }
    accuracy = {name: [roses(norm, seed + k) for k in range(SEEDS)] for name, norm in NORMS.items()}
    recognised = {
        name: {colour: fmean(run[colour] for run in some) for colour in ("red", "white")}
        for name, some in accuracy.items()
    }
    steps = range(STEPS)
    panels = [
        panel(f"shift of pre-activations, {name}", "step", "|μ_t − μ_0| / σ_0",
              {f"layer {i + 1}": line for i, line in enumerate(shifts[name])}, steps)
        for name in NORMS
    ]  # fmt: skip
    panels.append(panel("training loss", "step", "loss", losses, steps))
    colours = {name: [row["red"], row["white"]] for name, row in recognised.items()}
    panels.append(panel("roses recognised, trained on red ones", "0: red, 1: white", "accuracy", colours, [0, 1]))
    last = {name: lines[-1][-1] for name, lines in shifts.items()}
    return {
        "title": f"The last layer's pre-activations move by {last['no norm']:.1f} deviations without a norm, "
        f"{last['batch norm']:.1f} with batch norm, {last['layer norm']:.1f} with layer norm; white roses recognised: "
        + ", ".join(f"{recognised[name]['white']:.0%}" for name in NORMS),
        "seed": seed,
        "seeds": SEEDS,
        "last_shift": {name: [line[-1] for line in lines] for name, lines in shifts.items()},
        "loss": {name: fmean(line[-10:]) for name, line in losses.items()},
        "roses": recognised,
        "roses_by_seed": accuracy,
        "panels": panels,
    }


def watch(norm: Any, seed: int) -> dict[str, Any]:
    """Train on gratings; returns the loss of each step, and the shift of each layer at each step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Network(N * N, 8, norm)
    optimizer = OptimConfig(kind="momentum", lr=RATE).build(model)
    probe, _ = gratings(256, generator)
    losses, places = [], []
    for _ in range(STEPS):
        with torch.no_grad():
            places.append(model(probe)[1])
        images, classes = gratings(ROWS, generator)
        loss = F.cross_entropy(model(images)[0], classes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    first = places[0]
    moved = [
        [float(((now[i].mean(0) - first[i].mean(0)).abs() / (first[i].std(0) + 1e-6)).mean()) for now in places]
        for i in range(DEPTH)
    ]
    return {"loss": losses, "shift": moved}


def roses(norm: Any, seed: int) -> dict[str, float]:
    """Train with red roses; returns the accuracy on red and on white roses. All other pictures are white."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Network(3 * N * N, 2, norm)
    optimizer = OptimConfig(kind="momentum", lr=RATE).build(model)
    for _ in range(STEPS):
        images, is_rose = pictures(ROWS, RED, generator)
        loss = F.cross_entropy(model(images)[0], is_rose)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    results = {}
    with torch.no_grad():
        for name, colour in (("red", RED), ("white", WHITE)):
            images, is_rose = pictures(TESTS, colour, generator)
            predicted = model(images)[0].argmax(1)
            results[name] = float((predicted == is_rose)[is_rose == 1].float().mean())
    return results


def pictures(n: int, colour: tuple[float, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return images (n, 3, N, N) and whether each is a rose: a grating of the first four directions, of that colour."""
    grey, classes = gratings(n, generator)
    is_rose = (classes < 4).long()
    paint = torch.where(is_rose[:, None] == 1, torch.tensor(colour), torch.tensor(WHITE))  # (n, 3)
    return grey * paint[:, :, None, None], is_rose
