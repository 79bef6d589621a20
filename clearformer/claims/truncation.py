"""What truncated backpropagation through time costs: gradients stop every k letters, the state goes on.

    ∂E/∂W = Σ_t Σ_{s ≤ t} ∂E_t/∂h_t · ∂h_t/∂h_s · ∂h_s/∂W      truncated: only s in the same piece of k letters as t

A character LSTM reads texts of 128 letters of the bundled corpus. Measured are the cosine of the truncated gradient
with the full one, before and after training, and the loss after training with each k: the same letters, the same number
of updates. Three seeds.
"""

from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.bundled.corpus import generate
from clearformer.claims.gradients import T, texts
from clearformer.claims.panels import mean_over, panel
from clearformer.claims.readers import Recurrent
from clearformer.training.optim import OptimConfig

PIECES = (1, 2, 4, 8, 16, 32, 64, T)
TRAINED = (1, 4, 16, T)  # pieces with which a network is trained
ROWS, STEPS, RATE, SEEDS, LAST = 16, 150, 5e-3, 3, 10


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot truncation` shows."""
    text = " ".join(pair.english for pair in generate(2000, seed))
    letters = sorted(set(text))
    stream = torch.tensor([letters.index(letter) for letter in text])
    before: list[list[float]] = []
    after: list[list[float]] = []
    losses: dict[int, list[list[float]]] = {k: [] for k in TRAINED}
    for run in range(seed, seed + SEEDS):
        for k in TRAINED:
            torch.manual_seed(run)
            reader = Recurrent(len(letters), "lstm")
            if k == T:
                before.append(cosines(reader, stream, run))
            losses[k].append(train(reader, stream, k, run))
            if k == T:
                after.append(cosines(reader, stream, run))
    ends = {str(k): fmean(fmean(line[-LAST:]) for line in lines) for k, lines in losses.items()}
    lines = {f"k = {k}": mean_over(some) for k, some in losses.items()}
    angles = {"before training": mean_over(before), "after training": mean_over(after)}
    return {
        "title": f"Loss after {STEPS} updates: {ends['1']:.2f} nats per letter with gradients of 1 letter, "
        f"{ends['16']:.2f} of 16, {ends[str(T)]:.2f} of {T}",
        "seed": seed,
        "seeds": SEEDS,
        "loss": ends,
        "loss_by_seed": {str(k): [fmean(line[-LAST:]) for line in some] for k, some in losses.items()},
        "cosine": {name: {str(k): value for k, value in zip(PIECES, line)} for name, line in angles.items()},
        "panels": [
            panel("truncated gradient against the full one", "k, letters", "cosine", angles, PIECES),
            panel("training loss", "update", "nats per letter", lines, range(1, STEPS + 1)),
        ],
    }


def loss_of(reader: Recurrent, rows: Tensor, k: int) -> Tensor:
    """Return the loss of rows (B, T + 1), with the state detached every k letters."""
    x, hidden, state = reader.embed(rows[:, :-1]), [], None
    for piece in x.split(k, dim=1):
        output, state = reader.layer(piece, None if state is None else state.detach())
        hidden.append(output)
    return F.cross_entropy(reader.head(torch.cat(hidden, dim=1)).flatten(0, 1), rows[:, 1:].flatten())


def cosines(reader: Recurrent, stream: Tensor, seed: int) -> list[float]:
    """Return, for each k, the cosine of the truncated gradient of the recurrent matrix with the full one."""
    rows = texts(stream, ROWS, torch.Generator().manual_seed(seed + 100))
    weight = reader.layer.weights.weight_hh_l0
    gradients = [torch.autograd.grad(loss_of(reader, rows, k), weight)[0].flatten() for k in PIECES]
    return [float(F.cosine_similarity(gradient, gradients[-1], dim=0)) for gradient in gradients]


def train(reader: Recurrent, stream: Tensor, k: int, seed: int) -> list[float]:
    optimizer, generator = OptimConfig(lr=RATE).build(reader), torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(reader, texts(stream, ROWS, generator), k)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
