"""The first steps of a walk that does not begin with tokens.

image       patch → x = E patch + b → class token in front → + position
recording   log-mel frames → filters over time, which leave fewer frames
"""

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.layers.feedforward import gelu
from clearformer.layers.patches import Patches
from clearformer.layers.subsample import Subsample
from clearformer.lens.reading import Reading


class Steps(Protocol):
    """A walk that collects steps (walk.py)."""

    reading: Reading

    def add(self, name: str, equation: str, value: Tensor, rows: Any = None, recorded: Tensor | None = None) -> Tensor:
        """Add a step, and return its value."""

    def recorded(self, name: str) -> Tensor:
        """Return an activation that the model recorded."""


def cut_image(walk: Steps) -> Tensor:
    """Walk from the pixels of an image (C, Y, X) to one vector for each patch, (T, D)."""
    model, batch = walk.reading.model, vars(walk.reading.batch)
    patches: Any = model.get_submodule("patches")
    assert isinstance(patches, Patches)
    conv: Any = patches.conv
    names = [name for name in walk.reading.target if name.startswith("patch ")]
    size = conv.kernel_size[0]
    pixels = batch["pixels"].to(conv.weight.dtype)
    cells = F.unfold(pixels, size, stride=size)[0].T  # (P, C·F·F)
    walk.add("patch", f"{size} × {size} pixels, normalised", cells, names)
    x = cells @ conv.weight.flatten(1).T + conv.bias
    x = walk.add("embedding", "x = E patch + b", x, names, walk.recorded("patches.conv.out").flatten(1).T)
    if patches.class_token is not None:
        x = walk.add("class token", "a learnt vector, then the patches", torch.cat([patches.class_token[0], x]))
    side = [length // size for length in pixels.shape[-2:]]
    added = walk.add("position", "P: a vector for each position", patches.interpolated(*side)[0])
    return walk.add("embedding + position", "x + P", x + added, recorded=walk.recorded("patches.out"))


def hear_frames(walk: Steps) -> Tensor:
    """Walk from the log-mel frames of a recording (T, M) to fewer frames, (T', D)."""
    model, batch = walk.reading.model, vars(walk.reading.batch)
    layers: Any = model.get_submodule("subsample")
    assert isinstance(layers, Subsample)
    x = batch["sounds"][0].to(next(layers.parameters()).dtype)
    walk.add("frames", "energy in each mel band, as a logarithm", x, frames(len(x)))
    last = len(layers.convs) - 1
    for i in range(last + 1):
        conv: Any = layers.convs[i]
        x = gelu(layers.norms[i](conv(x.T).T))
        recorded = walk.recorded("subsample.out") if i == last else None
        equation = f"gelu(norm(filters of {conv.kernel_size[0]} frames)), stride {conv.stride[0]}"
        x = walk.add(f"convolution {i}", equation, x, walk.reading.target if i == last else frames(len(x)), recorded)
    return x


def frames(n: int) -> list[str]:
    return [f"frame {i}" for i in range(n)]
