"""Self-supervised learning: how much a network learns from images without labels, measured with a few labels.

    contrastive      −log exp(cos(z_i, z_j) / τ) / Σ_{k ≠ i} exp(cos(z_i, z_k) / τ)     Chen et al. 2020, eq. 1
    masked pixels    |u − g(f(m ⊙ u))|², over the pixels where m = 0                    Vincent et al. 2008

z_i and z_j belong to two views of one image, k to all views of the batch; u is a view, m a random mask. A body f learns
one of them on gratings (batch_norm.py) and is frozen; then a linear layer on its features learns the labels. Beside
them are a body with its random weights, and a whole network that learns the labels alone. The views are those of
consistency.py, and do not change the class. Three seeds.
"""

from collections.abc import Callable
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.batch_norm import CLASSES, N, gratings
from clearformer.claims.consistency import LABELS, RATE, SEEDS, TESTS, labelled, view
from clearformer.claims.panels import mean_over, panel
from clearformer.training.optim import OptimConfig

HIDDEN, WIDTH, Z = 128, 64, 32  # hidden layers and features of the body, and the vectors that are contrasted
ROWS, PRETRAINING, EVERY, STEPS = 128, 500, 10, 200  # EVERY: losses per point of the figure
TEMPERATURE, MASKED = 0.2, 0.5  # τ, and the share of hidden pixels
Loss = Callable[[Tensor], Tensor]  # (B, 1, N, N) -> loss


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot self-supervision` shows."""
    seeds = range(seed, seed + SEEDS)
    learned = {name: [pretrain(name, k) for k in seeds] for name in PRETEXTS}
    bodies = {name: [body for body, _ in some] for name, some in learned.items()}
    bodies["random body"] = [build(k) for k in seeds]
    by_seed = {
        name: [[read(body, n, k) for n in LABELS] for k, body in zip(seeds, some)] for name, some in bodies.items()
    }
    by_seed["labels alone"] = [[read(build(k), n, k, is_frozen=False) for n in LABELS] for k in seeds]
    accuracy = {name: mean_over(lines) for name, lines in by_seed.items()}
    losses = {name: mean_over([fall(loss) for _, loss in some]) for name, some in learned.items()}
    few = ", ".join(f"{line[0]:.0%} {name}" for name, line in accuracy.items())
    return {
        "title": f"{LABELS[0]} label per class: {few}",
        "seed": seed,
        "seeds": SEEDS,
        "labels": LABELS,
        "accuracy": accuracy,
        "accuracy_by_seed": by_seed,
        "panels": [
            panel(
                "learning without labels",
                "step",
                "loss / loss of the first steps",
                losses,
                range(0, PRETRAINING, EVERY),
            ),
            panel("test accuracy", "labelled images per class", "accuracy", accuracy, LABELS),
        ],
    }


def fall(losses: list[float]) -> list[float]:
    """Return the means of EVERY losses each, divided by the first of them."""
    means = [fmean(losses[i : i + EVERY]) for i in range(0, len(losses), EVERY)]
    return [mean / means[0] for mean in means]


def build(seed: int) -> nn.Sequential:
    """Build a body of three layers relu(norm(W h)), (B, 1, N, N) -> (B, WIDTH)."""
    torch.manual_seed(seed)
    layers = [(nn.Linear(a, b), nn.LayerNorm(b), nn.ReLU()) for a, b in pairwise((N * N, HIDDEN, HIDDEN, WIDTH))]
    return nn.Sequential(nn.Flatten(), *(part for layer in layers for part in layer))


def pretrain(name: str, seed: int) -> tuple[nn.Sequential, list[float]]:
    """Return a body that has learned from images without labels, and the loss at each step."""
    body, generator = build(seed), torch.Generator().manual_seed(seed)
    head, loss = PRETEXTS[name](body, generator)
    return body, learn(nn.ModuleList([body, head]), lambda: loss(gratings(ROWS, generator)[0]), PRETRAINING)


def contrastive(body: nn.Module, generator: torch.Generator) -> tuple[nn.Module, Loss]:
    """Return a head for vectors z, (B, WIDTH) -> (B, Z), and the loss that tells views of one image from all others."""
    head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, Z))
    return head, lambda images: contrast(*(head(body(view(images, generator))) for _ in range(2)))


def contrast(z: Tensor, other: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the contrastive loss of two views, (B, Z) each: the mean over all 2B rows."""
    rows = F.normalize(torch.cat([z, other]), dim=1)
    scores = (rows @ rows.T / temperature).fill_diagonal_(float("-inf"))  # (2B, 2B); k ≠ i
    return F.cross_entropy(scores, torch.arange(len(rows)).roll(len(z)))


def masked_pixels(body: nn.Module, generator: torch.Generator) -> tuple[nn.Module, Loss]:
    """Return a head that paints images, (B, WIDTH) -> (B, N · N), and its squared error on hidden pixels."""
    head = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, N * N))

    def loss(images: Tensor) -> Tensor:
        images = view(images, generator)
        is_hidden = torch.rand(images.shape, generator=generator) < MASKED
        painted = head(body(images.masked_fill(is_hidden, 0.0))).view_as(images)
        return (painted - images)[is_hidden].square().mean()

    return head, loss


PRETEXTS = {"contrastive": contrastive, "masked pixels": masked_pixels}


def read(body: nn.Sequential, n: int, seed: int, is_frozen: bool = True) -> float:
    """Train a linear layer on the features, with n labelled images per class; returns the accuracy on test images.

    Unless it is frozen, the body learns, too.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    images, classes = labelled(n, generator)
    head = nn.Linear(WIDTH, CLASSES)

    def loss() -> Tensor:
        rows = torch.randint(len(images), (ROWS,), generator=generator)
        with torch.set_grad_enabled(not is_frozen):
            features = body(view(images[rows], generator))
        return F.cross_entropy(head(features), classes[rows])

    learn(head if is_frozen else nn.ModuleList([body, head]), loss, STEPS)
    tests, answers = gratings(TESTS, generator)
    with torch.no_grad():
        return float((head(body(tests)).argmax(1) == answers).float().mean())


def learn(module: nn.Module, loss: Callable[[], Tensor], steps: int) -> list[float]:
    """Train a module; returns the loss at each step."""
    optimizer, losses = OptimConfig(lr=RATE).build(module), []
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses
