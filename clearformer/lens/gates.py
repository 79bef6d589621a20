"""The gates and states of a recurrent model, token by token.

    lstm    m' = u ⊙ m̃ + f ⊙ m,  h' = o ⊙ tanh(m')     what is written, what is kept, what is shown
    gru     h' = (1 − z) ⊙ h̃ + z ⊙ h                    z near 1: the token leaves the state as it is

layers/cells.py has the equations of all cells. A gate is a vector between 0 and 1, shown by its mean over all units and
for the units whose state changes most over the text.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.layers.recurrent import Step, Unrolled
from clearformer.lens.points import STATES, points
from clearformer.lens.reading import Reading
from clearformer.lens.session import Lens
from clearformer.wording import count

UNITS = 32  # units of a heat map
MOST = 1000  # tokens of a text: each has a column in every heat map


def gates(reading: Reading, layer: str | None = None) -> dict[str, Any]:
    """Return gates and states of all recurrent layers, or of one: means by token, and single units."""
    layers = recurrent_layers(reading)
    if not layers:
        raise ConfigError(f"{reading.name} has no recurrent layers", "choose an RNN, a GRU or an LSTM")
    if layer is not None:
        if layer not in layers:
            raise ConfigError(f"{reading.name} has no recurrent layer `{layer}`", suggest(layer, layers))
        layers = {layer: layers[layer]}
    if (n := max(len(reading.target), len(reading.source or []))) > MOST:
        raise DataError(f"the text has {count(n, 'token')}; gates are shown for at most {MOST}", "give a shorter text")
    names = [f"{name}.{part}" for name, parts in layers.items() for part in parts]
    _, look = reading.look(keep=names)
    return {
        "title": f"Gates of {reading.name}",
        "layers": [one_layer(reading, name, parts, look) for name, parts in layers.items()],
    }


def recurrent_layers(reading: Reading) -> dict[str, list[str]]:
    """Return the names of gates and states of each layer: first the gates, then the states."""
    layers: dict[str, list[str]] = {}
    for name, point in points(reading.model).items():
        path, _, part = name.rpartition(".")
        if isinstance(point.module, Unrolled | Step) and (point.place == "cell" or isinstance(point.module, Step)):
            layers.setdefault(path, []).append(part)
    return {path: sorted(parts, key=lambda part: part in (*STATES, "out")) for path, parts in layers.items()}


def one_layer(reading: Reading, name: str, parts: list[str], look: Lens) -> dict[str, Any]:
    values = by_time(parts, [look[f"{name}.{part}"] for part in parts])
    state = values["m" if "m" in values else "h"]
    units = state.std(0, correction=0).argsort(descending=True, stable=True)[:UNITS].sort().values
    return {
        "name": name,
        "tokens": tokens_of(reading, name),
        "n_units": state.size(1),
        "means": {part: value.mean(1).tolist() for part, value in values.items()},
        "units": units.tolist(),
        "values": {part: value[:, units].T.tolist() for part, value in values.items()},  # (units, T)
    }


def by_time(parts: list[str], recorded: list[Any]) -> dict[str, Tensor]:
    """Return gates and states as (T, D). A decoder that reads token by token records (1, 1, D) for each token."""
    if "out" not in parts:
        return {part: value[0].float() for part, value in zip(parts, recorded)}
    steps = {part: torch.stack(value if isinstance(value, list) else [value]) for part, value in zip(parts, recorded)}
    states = steps.pop("out")  # (T, N, 1, 1, D)
    gates = {part: value.flatten(0, 2).float() for part, value in steps.items()}
    return gates | {state: states[:, i].flatten(0, 2).float() for i, state in enumerate(STATES[: states.size(1)])}


def tokens_of(reading: Reading, layer: str) -> list[str]:
    is_encoder = layer.split(".")[0] == "encoder"
    return reading.source if is_encoder and reading.source is not None else reading.target
