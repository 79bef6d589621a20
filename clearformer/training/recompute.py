"""Store fewer activations for the backward pass, and compute the others a second time: [train] recompute.

    none      all activations of L blocks are stored           memory ~ L · (activations of a block)
    blocks    only the input of each block is stored           memory ~ L · B·T·D + (activations of one block)

The forward pass of a block is a third of its work, so a step takes up to a third more time (Chen et al. 2016). The head
and the loss of an objective that predicts tokens are computed for CHUNK positions at a time: the B·T·V logits of a long
text would need more memory than the blocks.

Random draws are repeated, so that dropout is the same both times. Losses and gradients have the same bits as without
recomputation; for more than CHUNK positions they are sums over chunks, which differ by rounding. The random generator
of a CUDA device cannot be rewound inside a CUDA graph, so steps are not recorded (graphs.py).
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from clearformer.layers.blocks import Block

Recompute = Literal["none", "blocks"]
CHUNK = 1024  # positions: 50,257 logits each take about 1 GB with their gradients

Objective = TypeVar("Objective")


class Recomputed:
    """The forward method of a block; its activations are recomputed in the backward pass.

    It takes the place of `block.forward`, inside the hooks of the block: FSDP gathers the weights of a block once for
    its backward pass and recomputation.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *inputs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*inputs)
        return checkpoint(self.forward, *inputs, use_reentrant=False)

    def compile(self) -> None:
        """Compile the block for forward pass and recomputation. torch.compile cannot change what is stored."""
        self.forward = torch.compile(self.forward, dynamic=True)


def recompute_blocks(model: nn.Module) -> int:
    """Recompute the activations of every block of a Transformer and of every step of a recurrent decoder.

    Returns the number of these blocks. Blocks with batch norms are left out: a second pass would update their running
    statistics again.
    """
    blocks = [module for module in model.modules() if is_repeatable(module)]
    for block in blocks:
        block.forward = Recomputed(block.forward)
    return len(blocks)


def is_repeatable(module: nn.Module) -> bool:
    is_block = isinstance(module, Block) or getattr(module, "is_block", False)
    return is_block and not any(isinstance(part, _BatchNorm) for part in module.modules())


def in_chunks(objective: Objective, recompute: Recompute) -> Objective:
    """The objective, which computes head and loss in chunks if activations are recomputed and it has a `chunk`."""
    if recompute != "none" and hasattr(objective, "chunk"):
        objective.chunk = CHUNK
    return objective
