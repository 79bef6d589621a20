"""torch.compile where it pays: on CUDA, where a small model spends its time launching kernels.

    blocks   each block of a stack by itself: one graph serves all blocks of a kind, compiled in seconds; a module that
             says `is_block`, such as the step of a recurrent decoder, likewise
    whole    the objective with the whole model inside: one graph, head and loss fused

Only training runs compiled: decoding calls the model's own Python.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearformer.data.batch import Tensors

How = Literal["off", "blocks", "whole"]
Objective = Callable[[nn.Module, Any], Any]  # -> (total: Tensor, count: int)


def compiled(objective: Objective, model: nn.Module, how: How) -> Objective:
    """The objective, compiled in this way; "off" is the objective itself."""
    if how == "blocks":
        for module in model.modules():
            if isinstance(module, nn.ModuleList):
                for block in module:
                    block.compile(dynamic=True)
            elif getattr(module, "is_block", False):
                module.compile(dynamic=True)
    if how != "whole":
        return objective

    # Tensors alone cross the border: a count of tokens would be compiled in as a constant, a graph for each count.
    @torch.compile
    def total(model: nn.Module, kind: Callable[..., Tensors], tensors: dict[str, Tensor | None]) -> Tensor:
        return objective(model, kind(**tensors, n_tokens=0))[0]

    def run(model: nn.Module, batch: Tensors) -> tuple[Tensor, int]:
        tensors = {name: value for name, value in vars(batch).items() if name != "n_tokens"}
        return total(model, type(batch), tensors), batch.n_tokens

    return run
