"""Histograms of weights and activations by layer: on a text, or of weights, gradients and activations over a training.

    n_b = number of values in bin b of 32          and of values outside the bins (layers/histogram.py)

Activations that grow from layer to layer, weights far outside the others, and gradients that shrink over the steps are
visible here. A training records its histograms with train.histograms = true, in histograms.jsonl of the run folder.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder
from clearformer.errors import ConfigError, DataError, suggest
from clearformer.layers.histogram import as_json, histogram
from clearformer.layers.recurrent import Unrolled
from clearformer.layers.weight_names import place_of
from clearformer.lens.points import points
from clearformer.lens.reading import Reading

PARTS = ("weights", "gradients", "activations")
EVERY = "train with --set train.histograms=true, or give a text"


@torch.no_grad()
def histograms(reading: Reading, layer: str | None = None) -> dict[str, Any]:
    """Return histograms of the weights of each layer, and of the activation after each layer on a text."""
    weights: dict[str, list[Tensor]] = {}
    for name, parameter in reading.model.named_parameters():
        weights.setdefault(place_of(name)[0], []).append(parameter)
    names = activation_names(reading.model)
    _, look = reading.look(keep=names)
    kept = {name: look.kept[name] for name in names if name in look}
    chosen = pick([*dict.fromkeys([*weights, *(layer_of(name) for name in kept)])], layer, reading.name)
    return {
        "title": f"Weights and activations of {reading.name}",
        "weights": [described(name, parts) for name, parts in weights.items() if name in chosen],
        "activations": [described(name, parts) for name, parts in kept.items() if layer_of(name) in chosen],
    }


def activation_names(model: nn.Module) -> list[str]:
    """The activation after each layer: residual streams, recurrent states, else outputs of linear and conv layers."""
    known = points(model)
    streams = [name for name in known if name.endswith(".resid_post")]
    states = [name for name, point in known.items() if isinstance(point.module, Unrolled) and point.leaf[-2:] == ".h"]
    if streams or states:
        return streams + states
    layers = (nn.Linear, nn.Conv1d, nn.Conv2d)
    return [name for name, point in known.items() if isinstance(point.module, layers) and name.endswith(".out")]


def layer_of(activation: str) -> str:
    return activation.rpartition(".")[0]


def described(name: str, parts: list[Tensor]) -> dict[str, Any]:
    """Return the histogram of all values of a layer, with their mean and standard deviation."""
    values = torch.cat([part.detach().flatten().float() for part in parts])
    return {
        "name": name,
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
        **as_json(histogram(values)),
    }


def histograms_of_run(folder: Path, layer: str | None = None) -> dict[str, Any]:
    """Return the histograms that a training recorded, by layer and step. Older runs have no activations."""
    file = RunFolder(folder).histograms
    if not file.exists():
        raise DataError(f"{folder} has no histograms of its training", EVERY)
    complete = file.read_text(encoding="utf-8").split("\n")[:-1]  # the last line may be half-written
    rows = [json.loads(line) for line in complete if line.strip()]
    if not rows:
        raise DataError(f"{file} has no records yet", "wait for the first validation of the run")
    known = [*dict.fromkeys([*rows[0]["weights"], *rows[0].get("activations", {})])]
    names = pick(known, layer, str(folder))
    return {
        "title": f"Weights, gradients and activations of {folder.name} over its training",
        "steps": [row["step"] for row in rows],
        "layers": [
            {"name": name} | {part: [row.get(part, {}).get(name) for row in rows] for part in PARTS} for name in names
        ],
    }


def pick(names: list[str], layer: str | None, model: str) -> list[str]:
    if layer is not None and layer not in names:
        raise ConfigError(f"{model} has no layer `{layer}`", suggest(layer, names))
    return names if layer is None else [layer]
