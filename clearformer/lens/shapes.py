"""The names of all activations of a model with their shapes, computed without data on torch's meta device."""

import torch
from torch import Tensor, nn

from clearformer.data.batch import Tensors
from clearformer.lens.points import points
from clearformer.lens.session import Lens


def shapes(model: nn.Module, batch: Tensors) -> dict[str, list[int] | None]:
    """Return the shape of each activation of a model on the meta device; None for one that `batch` does not reach.

    A step of a recurrent decoder occurs once for each token; the shape is that of one step.
    """
    known = points(model)
    with torch.no_grad(), Lens(model, keep=known) as look:
        model(batch)
    return {name: shape_of(look[name]) if name in look else None for name in known}


def shape_of(kept: Tensor | list[Tensor]) -> list[int]:
    return list((kept[0] if isinstance(kept, list) else kept).shape)
