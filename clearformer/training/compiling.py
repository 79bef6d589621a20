"""torch.compile where it pays: on CUDA, where a small model spends its time launching kernels.

    blocks   each block of a stack by itself: one graph serves all blocks of a kind, compiled in seconds; a module that
             says `is_block`, such as the step of a recurrent decoder, likewise
    whole    the objective with the whole model inside: one graph, head and loss fused, for each of a few batch shapes

Only training runs compiled: decoding calls the model's own Python.
"""

from collections.abc import Callable, Hashable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearformer.data.batch import Tensors
from clearformer.training.journal import console

How = Literal["off", "blocks", "whole"]
Objective = Callable[[nn.Module, Any], Any]  # -> (total: Tensor, count: int)
MAX_SHAPES = 4  # graphs of a whole model, a minute or more of compiling each


def compiled(objective: Objective, model: nn.Module, how: How, backend: str | Callable = "inductor") -> Objective:
    """The objective, compiled in this way; "off" is the objective itself. `backend` is torch.compile's, for "whole"."""
    if how == "blocks":
        for module in model.modules():
            if isinstance(module, nn.ModuleList):
                for block in module:
                    block.compile(dynamic=True)
            elif getattr(module, "is_block", False):
                module.compile(dynamic=True)
    return Whole(objective, backend) if how == "whole" else objective


class Whole:
    """An objective that is compiled for the first MAX_SHAPES batch shapes and runs as it is for all others.

    Text in batches of like length has a new shape at almost every step, and compiling each takes far longer than
    training on it.
    """

    def __init__(self, objective: Objective, backend: str | Callable) -> None:
        self.objective, self.shapes, self.is_said = objective, set[Hashable](), False

        # Tensors alone cross the border: a count of tokens would be compiled in as a constant, a graph for each count.
        @torch.compile(dynamic=False, backend=backend)
        def total(model: nn.Module, kind: Callable[..., Tensors], tensors: dict[str, Any]) -> Tensor:
            return objective(model, kind(**tensors, n_tokens=0))[0]

        self.total = total

    def __call__(self, model: nn.Module, batch: Tensors) -> tuple[Tensor, int]:
        tensors = {name: value for name, value in vars(batch).items() if name != "n_tokens"}
        if self.is_compiled(shape_of(tensors)):
            return self.total(model, type(batch), tensors), batch.n_tokens
        return self.objective(model, batch)[0], batch.n_tokens

    def is_compiled(self, shape: Hashable) -> bool:
        """Whether this shape has a graph, or is given one now."""
        if len(self.shapes) < MAX_SHAPES:
            self.shapes.add(shape)
        is_known = shape in self.shapes
        if not is_known and not self.is_said:
            self.is_said = True
            console.print(
                f'train.compile = "whole" compiles one graph per batch shape; {MAX_SHAPES} shapes are compiled, other '
                "shapes run uncompiled. Use train.compile=blocks for text of many lengths."
            )
        return is_known


def shape_of(tensors: dict[str, Any]) -> Hashable:
    """All of a batch that a graph depends on: shapes and types of tensors, and whatever is no tensor, by value."""
    return tuple(
        (name, value.shape, value.dtype) if isinstance(value, Tensor) else (name, value)
        for name, value in tensors.items()
    )
