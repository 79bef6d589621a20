"""Vanishing and exploding gradients, measured.

For each reader, as torch begins it and from orthogonal matrices, before and after learning to read the bundled corpus
letter by letter: the norm of ∂h_t/∂h_k against t − k (`jacobians.py`), the geometric mean over a few texts. Then an RNN
that begins with 2 times a rotation, so that gradients explode, with and without clipping:

    g ← g · min(1, clip / |g|)                                                       Pascanu et al. 2013
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.bundled.corpus import generate
from clearformer.claims.readers import Attentive, Reader, Recurrent
from clearformer.training.optim import OptimConfig

T, ROWS = 128, 16  # letters of a text, texts of a step
LOOKS = 4  # texts over which norms are averaged
STEPS, CLIP = 200, 1.0
GAIN = 2.0  # of the RNN that explodes
MARKS = (10, 50, 100)  # distances that are told as numbers
READERS: dict[str, Callable[[int], Reader]] = {
    "RNN": lambda n: Recurrent(n, "rnn"),
    "GRU": lambda n: Recurrent(n, "gru"),
    "LSTM": lambda n: Recurrent(n, "lstm"),
    "attention": Attentive,
}
LINEAR = "RNN without its tanh"
STARTS = ("default", "orthogonal")


def watch(seed: int = 0) -> dict[str, Any]:
    """The numbers that `clearformer plot gradients` draws."""
    text = " ".join(pair.english for pair in generate(2000, seed))
    letters = sorted(set(text))
    stream = torch.tensor([letters.index(letter) for letter in text])
    looks = texts(stream, LOOKS, torch.Generator().manual_seed(seed + 1))[:, :-1]
    norms: dict[str, Any] = {start: {"untrained": {}, "trained": {}} for start in STARTS}
    losses: dict[str, Any] = {start: {} for start in STARTS}
    for start in STARTS:
        for name, build in READERS.items():
            torch.manual_seed(seed)
            reader = build(len(letters))
            if start == "orthogonal":
                reader.orthogonal()
            norms[start]["untrained"] |= reach(name, reader, looks)
            losses[start][name] = train(reader, stream, OptimConfig(lr=5e-3), CLIP, seed)["loss"][-1]
            norms[start]["trained"] |= reach(name, reader, looks)
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
    found = ", ".join(
        f"{norms[name][d]:.0e} in {article} {name}" for article, name in (("an", "RNN"), ("a", "GRU"), ("an", "LSTM"))
    )
    return f"Before training, a gradient {d} letters back is {found}, and {norms['attention'][d]:.0e} through attention"


def reach(name: str, reader: Reader, looks: Tensor) -> dict[str, list[float]]:
    """Norms by distance; of an RNN also those without its tanh."""
    with torch.no_grad():
        found = {name: reader.norms(looks)}
        if name == "RNN" and isinstance(reader, Recurrent):
            found[LINEAR] = reader.norms(looks, is_linear=True)
    return {each: norms.log().mean(dim=0).exp().tolist() for each, norms in found.items()}


def explode(stream: Tensor, n_letters: int, seed: int) -> dict[str, Any]:
    found = {}
    for name, clip in (("with", CLIP), ("without", float("inf"))):
        torch.manual_seed(seed)
        reader = Recurrent(n_letters, "rnn").orthogonal(GAIN)
        found[name] = train(reader, stream, OptimConfig(kind="sgd", lr=0.5), clip, seed)
    return found


def train(reader: Reader, stream: Tensor, rule: OptimConfig, clip: float, seed: int) -> dict[str, list[float]]:
    """The loss and the norm of the gradient, before any clipping, at each step."""
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
    """Windows (n, T + 1) of the stream, anywhere."""
    starts = torch.randint(len(stream) - T, (n, 1), generator=generator)
    return stream[starts + torch.arange(T + 1)]
