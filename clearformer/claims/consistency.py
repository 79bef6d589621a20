"""Consistency as a training signal: two views of an image without a label should get the same answer.

    loss = CE(f(v(x)), y) + λ · |p(v(u)) − p(v'(u))|²,   p = softmax f          Sajjadi et al. 2016, Laine & Aila 2017

x are the few images with labels y, u are images without, and v is a random view: the image or its negative, as it is
or turned by 180°, with noise. None of these changes the direction of a grating, which is its class (batch_norm.py).
λ grows from 0 during the first half of training. With λ = 0 a network sees the same views of the same labelled images.
Three seeds.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.batch_norm import CLASSES, N, gratings
from clearformer.claims.covariate_shift import Network
from clearformer.claims.panels import mean_over, panel
from clearformer.training.optim import OptimConfig

LABELS = (1, 2, 4, 8, 16)  # labelled images per class
ROWS, STEPS, RATE, SEEDS, TESTS = 64, 400, 3e-3, 3, 1000
WEIGHTS = {"labels alone": 0.0, "with consistency": 10.0}  # λ
NOISE = 0.3


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot consistency` shows."""
    runs = {
        name: [[learn(n, weight, seed + k) for n in LABELS] for k in range(SEEDS)] for name, weight in WEIGHTS.items()
    }
    values = {
        key: {name: mean_over([[run[key] for run in line] for line in lines]) for name, lines in runs.items()}
        for key in ("accuracy", "disagreement")
    }
    few, many = ({name: line[i] for name, line in values["accuracy"].items()} for i in (0, -1))
    return {
        "title": f"{LABELS[0]} label per class: {few['labels alone']:.0%} right without consistency, "
        f"{few['with consistency']:.0%} with it; "
        f"{LABELS[-1]}: {many['labels alone']:.0%} and {many['with consistency']:.0%}",
        "seed": seed,
        "seeds": SEEDS,
        "labels": LABELS,
        **values,
        "accuracy_by_seed": {
            name: [[run["accuracy"] for run in line] for line in lines] for name, lines in runs.items()
        },
        "panels": [
            panel("test accuracy", "labelled images per class", "accuracy", values["accuracy"], LABELS),
            panel("disagreement of two views", "labelled images per class", "|p(v) − p(v')|²",
                  values["disagreement"], LABELS),
        ],
    }  # fmt: skip


def learn(n: int, weight: float, seed: int) -> dict[str, float]:
    """Train with n labelled images per class; returns the accuracy and the disagreement of views on test images."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    images, classes = labelled(n, generator)
    model = Network(N * N, CLASSES, nn.LayerNorm)
    optimizer = OptimConfig(lr=RATE).build(model)
    for step in range(STEPS):
        rows = torch.randint(len(images), (ROWS,), generator=generator)
        loss = F.cross_entropy(model(view(images[rows], generator))[0], classes[rows])
        others, _ = gratings(ROWS, generator)
        ramp = min(1.0, 2 * step / STEPS)
        loss = loss + weight * ramp * disagreement(model, others, generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tests, answers = gratings(TESTS, generator)
    with torch.no_grad():
        right = (model(tests)[0].argmax(1) == answers).float().mean()
        return {"accuracy": float(right), "disagreement": float(disagreement(model, tests, generator))}


def disagreement(model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean over images of |p(v) − p(v')|², for two random views v and v' of each."""
    one, other = (model(view(images, generator))[0].softmax(1) for _ in range(2))
    return (one - other).square().sum(1).mean()


def view(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random view of each image (B, 1, N, N)."""
    is_turned, is_negative = torch.rand(2, len(images), 1, 1, 1, generator=generator) < 0.5
    images = torch.where(is_turned, images.flip(2, 3), images)
    images = torch.where(is_negative, -images, images)
    return images + NOISE * torch.randn(images.shape, generator=generator)


def labelled(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw n images of each class; returns images (n · CLASSES, 1, N, N) and classes (n · CLASSES,)."""
    images, classes = gratings(64 * n * CLASSES, generator)
    rows = torch.cat([(classes == c).nonzero()[:n, 0] for c in range(CLASSES)])
    return images[rows], classes[rows]
