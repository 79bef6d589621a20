"""Activations of a model at work on one text, image or recording, ready to be sent.

    activations    tensors by name, with the names of their rows and columns where they are positions
    thumbnails     the same with at most 22 × 22 cells
    predictions    what each position predicts

The only text of a batch has no batch axis. An image model also has the image as it sees it, and the receptive field of
each feature map.
"""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fastapi.responses import Response
from torch import Tensor

from clearformer.data.batch import ImageBatch
from clearformer.errors import DataError
from clearformer.layers.receptive import ReceptiveFields
from clearformer.lens.points import points, select
from clearformer.lens.reading import Reading
from clearformer.lens.session import Lens
from clearformer.serve.answers import TENSORS, JSONText, tensors_of
from clearformer.wording import count

MOST_NUMBERS = 8_000_000
SIDE = 22  # rows and columns of a thumbnail, at most


@dataclass(frozen=True)
class Recorded:
    """What one forward pass has shown: `values` for JSON, and tensors by name, whole and small."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    small: dict[str, Tensor]

    def answer(self, accept: str) -> Response:
        """Return everything as JSON, or as tensors if the client accepts them."""
        if TENSORS in accept:
            return tensors_of(
                {**self.tensors, **{f"thumbnails.{name}": one for name, one in self.small.items()}}, self.values
            )
        for group, some in (("activations", self.tensors), ("thumbnails", self.small)):
            for name, tensor in some.items():
                self.values[group][name]["values"] = tensor.float().tolist()
        return JSONText(self.values)


def record(reading: Reading, names: list[str], thumbnails: Sequence[str] = (), alternatives: int = 0) -> Recorded:
    """Run a model once, and keep activations by name. Patterns of thumbnails may match nothing."""
    known = points(reading.model)
    thumbnails = [name for name in thumbnails if "*" not in name or fnmatch.filter(known, name.partition("[")[0])]
    logits, look, fields = look_at(reading, [*names, *thumbnails])
    tensors = chosen(look, names)
    small = {name: thumbnail(tensor) for name, tensor in chosen(look, thumbnails).items()}
    check_size(tensors)
    values: dict[str, Any] = {
        "model": reading.name,
        "source": reading.source,
        "target": reading.target,
        "outputs": reading.outputs,
        "predictions": predictions(reading, logits, alternatives),
        "activations": {
            name: {**axes(reading, name, tensor), "field": fields.get(name)} for name, tensor in tensors.items()
        },
        "thumbnails": {name: {"shape": list(tensor.shape)} for name, tensor in small.items()},
    }
    return Recorded(values, tensors, small)


def look_at(reading: Reading, keep: list[str]) -> tuple[Tensor, Lens, dict[str, dict[str, int]]]:
    """Run a model once. Returns logits, activations, and the receptive field of each feature map of an image."""
    if not isinstance(reading.batch, ImageBatch):
        return *reading.look(keep), {}
    with ReceptiveFields(reading.batch.pixels) as fields:
        logits, look = reading.look(keep)
    maps = {name: look[name] for name in look}
    known = {name: fields.of(one) for name, one in maps.items() if isinstance(one, Tensor) and one.dim() == 4}
    return logits, look, {name: vars(field) for name, field in known.items() if field is not None and is_map(name)}


def is_map(name: str) -> bool:
    """Whether a tensor (B, C, Y, X) of this name has channels. Inside attention, it has heads."""
    return name.endswith(".out")


def check_size(tensors: Mapping[str, Tensor]) -> None:
    n_numbers = sum(tensor.numel() for tensor in tensors.values())
    if n_numbers > MOST_NUMBERS:
        message = f"these activations have {count(n_numbers, 'number')}; a response has at most {MOST_NUMBERS:,}"
        raise DataError(message, "name fewer activations, or give a shorter text")


def whole(recorded: Any) -> Tensor:
    """Return an activation of the only text as one tensor. A recurrent decoder has one for each token it writes."""
    if isinstance(recorded, list):
        recorded = torch.cat(recorded, 1) if recorded[0].dim() > 2 else torch.stack(recorded, 1)
    tensor: Tensor = recorded
    return tensor[0]


def chosen(look: Lens, names: Sequence[str]) -> dict[str, Tensor]:
    """Return kept activations by name, each with the heads (H, …) that its name asks for: the lens may have more."""
    result: dict[str, Tensor] = {}
    for name, heads in select(names, look.known).items():
        if name in look:
            tensor, kept = whole(look[name]), look.heads[name]
            where = heads if heads is None or kept is None else [kept.index(head) for head in heads]
            result[name] = tensor if heads in (None, kept) else tensor[where]
    return result


def thumbnail(tensor: Tensor) -> Tensor:
    """Return the largest magnitude of each group of cells: (…, T, S) -> (…, t, s), where t and s are at most 22."""
    tensor = tensor.abs()
    for axis in (-2, -1)[-tensor.dim() :]:
        n = -(-tensor.size(axis) // SIDE)  # neighbours in a group
        if n > 1:
            missing = (0, 0) * (-1 - axis) + (0, -tensor.size(axis) % n)  # of the last group, filled with zeros
            tensor = F.pad(tensor, missing).unflatten(axis, (-1, n)).amax(axis)
    return tensor


def axes(reading: Reading, name: str, tensor: Tensor) -> dict[str, Any]:
    """Return the shape of an activation, and the names of its rows and columns where they are positions."""
    *path, leaf = name.split(".")
    rows: list[str] | None
    columns: list[str] | None = None
    if leaf in ("pattern", "scores"):
        rows, columns = reading.axes_of(name)
        n_prefix = tensor.size(-1) - len(columns)  # the columns of a learned prefix come first
        columns = [*(f"prefix {i}" for i in range(n_prefix)), *columns]
    else:
        is_source = reading.source is not None and (
            path[:1] == ["encoder"] or (path[-1:] == ["cross"] and leaf in "kv")
        )
        positions = (reading.source if is_source else reading.target) or []
        n_rows, n_columns = tensor.shape[-2:] if tensor.dim() > 1 else (0, 0)
        rows = positions if n_rows == len(positions) else None
        is_channels_first = rows is None and tensor.dim() == 2 and n_columns == len(positions)  # a filter over time
        columns = positions if is_channels_first else None
    return {"shape": list(tensor.shape), "rows": rows, "columns": columns}


def predictions(reading: Reading, logits: Tensor, n: int) -> list[dict[str, Any]] | None:
    """Return what each position predicts: the probability of the token that follows in the text, and the n best."""
    if not n or reading.spell is None or logits.dim() != 3 or logits.size(1) != len(reading.outputs):
        return None
    probabilities = logits[0].float().softmax(-1)
    best = probabilities.topk(min(n, probabilities.size(-1)), dim=-1)
    labels = getattr(reading.batch, "labels", None)
    known = labels[0].clamp(min=0) if reading.source is not None and labels is not None else None
    of_labels = None if known is None else probabilities.gather(1, known[:, None])[:, 0].tolist()
    rows = []
    for t, output in enumerate(reading.outputs):
        names = reading.spell(best.indices[t].tolist())
        some = [{"token": name, "probability": value} for name, value in zip(names, best.values[t].tolist())]
        probability = None if of_labels is None else of_labels[t]
        rows.append({"token": output, "probability": probability, "alternatives": some})
    return rows
