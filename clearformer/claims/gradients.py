"""Vanishing and exploding gradients, measured.

Each network is trained as a character language model on the bundled corpus, from torch's default and from orthogonal
initialisation. Before and after training, the norm of ∂h_t/∂h_k is measured for each distance t − k (`jacobians.py`),
as the geometric mean over a few texts. Then an RNN whose gradients explode, because its matrix starts as 2 times a
rotation, is trained with and without clipping:

    g ← g · min(1, clip / |g|)                                                       Pascanu et al. 2013
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.bundled.corpus import generate
from clearformer.claims.readers import Attentive, Convolutional, Reader, Recurrent
from clearformer.training.optim import OptimConfig

T, ROWS = 128, 16  # characters per text, texts per step
SAMPLES = 4  # texts over which norms are averaged
STEPS, CLIP = 200, 1.0
GAIN = 2.0  # of the initialisation of the RNN whose gradients explode
MARKS = (10, 50, 100)  # distances whose norms are also listed separately
READERS: dict[str, Callable[[int], Reader]] = {
    "RNN": lambda n: Recurrent(n, "rnn"),
    "GRU": lambda n: Recurrent(n, "gru"),
    "LSTM": lambda n: Recurrent(n, "lstm"),
    "convolutions": Convolutional,
    "attention": Attentive,
}
LINEAR = "RNN without its tanh"
STARTS = ("default", "orthogonal")


def watch(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot gradients` shows."""
    text = " ".join(pair.english for pair in generate(2000, seed))
    letters = sorted(set(text))
    stream = torch.tensor([letters.index(letter) for letter in text])
    samples = texts(stream, SAMPLES, torch.Generator().manual_seed(seed + 1))[:, :-1]
    norms: dict[str, Any] = {start: {"untrained": {}, "trained": {}} for start in STARTS}
    losses: dict[str, Any] = {start: {} for start in STARTS}
    for start in STARTS:
        for name, build in READERS.items():
            torch.manual_seed(seed)
            reader = build(len(letters))
            if start == "orthogonal":
                reader.orthogonal()
            norms[start]["untrained"] |= norms_by_distance(name, reader, samples)
            losses[start][name] = train(reader, stream, OptimConfig(lr=5e-3), CLIP, seed)["loss"][-1]
            norms[start]["trained"] |= norms_by_distance(name, reader, samples)
    return {
        "title": title(norms["default"]["untrained"]),
        "seed": seed,
        "norms": norms,
        "at": {
            start: {
                state: {name: {str(d): values[d] for d in MARKS} for name, values in lines.items()}
                for state, lines in states.items()
            }
            for start, states in norms.items()
        },
        "loss": losses,
        "clipping": {"gain": GAIN, "clip": CLIP, **explode(stream, len(letters), seed)},
    }


def title(norms: dict[str, list[float]]) -> str:
    d = MARKS[-1]
    recurrent = ", ".join(
        f"{norms[name][d]:.0e} in {article} {name}" for article, name in (("an", "RNN"), ("a", "GRU"), ("an", "LSTM"))
    )
    return f"Gradient norm {d} letters back, before training: {recurrent}, {norms['attention'][d]:.0e} with attention"


def norms_by_distance(name: str, reader: Reader, samples: Tensor) -> dict[str, list[float]]:
    """Return the gradient norm at each distance; for an RNN, also the norm without its tanh."""
    with torch.no_grad():
        lines = {name: reader.norms(samples)}
        if name == "RNN" and isinstance(reader, Recurrent):
            lines[LINEAR] = reader.norms(samples, is_linear=True)
    return {label: norms.log().mean(dim=0).exp().tolist() for label, norms in lines.items()}


def explode(stream: Tensor, n_letters: int, seed: int) -> dict[str, Any]:
    """Return the losses and gradient norms of an RNN with exploding gradients, with and without clipping."""
    runs = {}
    for name, clip in (("with", CLIP), ("without", float("inf"))):
        torch.manual_seed(seed)
        reader = Recurrent(n_letters, "rnn").orthogonal(GAIN)
        runs[name] = train(reader, stream, OptimConfig(kind="sgd", lr=0.5), clip, seed)
    return runs


def train(reader: Reader, stream: Tensor, rule: OptimConfig, clip: float, seed: int) -> dict[str, list[float]]:
    """Train a network; returns the loss and the gradient norm before clipping, at each step."""
    optimizer, generator = rule.build(reader), torch.Generator().manual_seed(seed)
    losses, norms = [], []
    for _ in range(STEPS):
        rows = texts(stream, ROWS, generator)
        loss = F.cross_entropy(reader(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(reader.parameters(), clip).item())
        losses.append(loss.item())
        optimizer.step()
    return {"loss": losses, "norm": norms}


def texts(stream: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n random windows of the stream, (n, T + 1)."""
    starts = torch.randint(len(stream) - T, (n, 1), generator=generator)
    return stream[starts + torch.arange(T + 1)]
