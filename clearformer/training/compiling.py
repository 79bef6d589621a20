"""torch.compile and CUDA graphs: [train] compile. A small model spends most of a step on launching kernels.

    graph    each step is recorded as a CUDA graph (graphs.py); nothing is compiled
    blocks   each block separately: one graph serves all blocks of the same type, compiled in seconds. This includes
             modules with `is_block`, such as the step of a recurrent decoder
    whole    the objective with the model: one graph per batch shape, with head and loss fused, for a few shapes
    auto     graph; for a long run of a Transformer also whole if all batches have one shape, otherwise blocks

Steps are recorded on CUDA, by one process, for the models and objectives with `is_recordable`: nothing in their forward
pass reads a value on the host, draws a random number there or keeps state in Python. With blocks and whole they are
recorded as well. Only training is compiled; decoding runs the uncompiled model.

On the CPU auto compiles nothing: with blocks, the model of `clearformer demo` trained at 0.7 times the speed of plain
steps.
"""

from collections.abc import Callable, Hashable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearformer.data.batch import Tensors
from clearformer.layers.attention import MultiHeadAttention
from clearformer.toolchain import can_compile
from clearformer.training.journal import console
from clearformer.training.recompute import Recomputed

How = Literal["auto", "off", "graph", "blocks", "whole"]
BatchShapes = Literal["auto", "free", "fixed"]
NumberOfShapes = Literal["one", "few", "many"]
Objective = Callable[[nn.Module, Any], Any]  # -> (total: Tensor, count: int)
MAX_SHAPES = 4  # graphs of the whole model; each takes a minute or more to compile
LONG_RUN = 4e16  # floating-point operations: about five minutes on an H200, where compiling takes one and saves a tenth


def choose(model: nn.Module, n_tokens: int, shapes: NumberOfShapes) -> How:
    """Resolve "auto" for a run on `n_tokens` tokens whose steps can be recorded."""
    n_operations = 6 * n_tokens * sum(p.numel() for p in model.parameters())
    has_attention = any(isinstance(module, MultiHeadAttention) for module in model.modules())
    if n_operations < LONG_RUN or not has_attention or not can_compile():
        return "graph"
    return "whole" if shapes == "one" else "blocks"


def compiled(objective: Objective, model: nn.Module, how: How, backend: str | Callable = "inductor") -> Objective:
    """The compiled objective; "off" returns it unchanged. `backend` is the backend of torch.compile for "whole"."""
    if how == "blocks":
        for module in model.modules():
            if isinstance(module, nn.ModuleList):
                for block in module:
                    compile_block(block)
            elif getattr(module, "is_block", False):
                compile_block(module)
    return Whole(objective, backend) if how == "whole" else objective


def compile_block(block: nn.Module) -> None:
    if isinstance(block.forward, Recomputed):
        block.forward.compile()
    else:
        block.compile(dynamic=True)


class Whole:
    """An objective that is compiled for the first MAX_SHAPES batch shapes and runs uncompiled for all others.

    Text in batches of similar length has a new shape at almost every step, and compiling for a shape takes far longer
    than a training step.
    """

    def __init__(self, objective: Objective, backend: str | Callable) -> None:
        self.objective, self.shapes, self.has_warned = objective, set[Hashable](), False

        # Only tensors are passed: a token count would be compiled in as a constant, with one graph per count.
        @torch.compile(dynamic=False, backend=backend)
        def total(model: nn.Module, kind: Callable[..., Tensors], tensors: dict[str, Any]) -> Tensor:
            return objective(model, kind(**tensors, n_tokens=0))[0]

        self.total = total

    def __call__(self, model: nn.Module, batch: Tensors) -> tuple[Tensor, int]:
        tensors = {name: value for name, value in vars(batch).items() if name != "n_tokens"}
        if self.is_compiled(batch.signature()):
            return self.total(model, type(batch), tensors), batch.n_tokens
        return self.objective(model, batch)[0], batch.n_tokens

    def is_compiled(self, shape: Hashable) -> bool:
        """Whether this shape is compiled, or is among the first MAX_SHAPES and will be compiled now."""
        if len(self.shapes) < MAX_SHAPES:
            self.shapes.add(shape)
        is_known = shape in self.shapes
        if not is_known and not self.has_warned:
            self.has_warned = True
            console.print(
                f'train.compile = "whole" compiles one graph per batch shape, for {MAX_SHAPES} shapes; batches of '
                "other shapes run uncompiled. For texts of many lengths, use --set train.compile=blocks."
            )
        return is_known
