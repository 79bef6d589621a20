"""A training step as a CUDA graph: recorded once per batch shape, then replayed with a single launch.

A step of a small model consists of thousands of kernels that take a few microseconds each, about as long as the host
takes to launch one. A graph holds all of them, from the forward pass to the optimiser, and the host launches it as one.

    first batch of a shape     a plain step, during which libraries choose their kernels
    second batch               the step is recorded, then replayed
    all later batches          the batch is copied into the tensors that the graph reads, and the graph is replayed

A graph repeats the same kernels on the same tensors. Everything that differs between steps is therefore a tensor on the
device: the batch, the number of tokens, the learning rate, the decay of the average. Random draws follow the generator
of the device, which is seeded before each step, so a replayed step draws the same dropout masks as a plain step.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import Tensors
from clearformer.training.journal import console

MAX_GRAPHS = 16  # recorded shapes; further shapes run as plain steps

Update = Callable[[Sequence[Tensors], Tensor], None]


class Graphs:
    """`update(batches, n_tokens)`, recorded for the first MAX_GRAPHS shapes that occur twice; plain for others.

    `clear` discards gradients, which a failed recording leaves behind without values.
    """

    def __init__(self, update: Update, clear: Callable[[], None], device: torch.device) -> None:
        self.update, self.clear = update, clear
        self.seen = set[Hashable]()
        self.steps = dict[Hashable, RecordedStep | None]()
        self.n_tokens = torch.ones((), device=device)
        self.pool = torch.cuda.graph_pool_handle()  # memory that all graphs reuse: only one runs at a time

    def __call__(self, batches: Sequence[Tensors], n_tokens: int) -> None:
        self.n_tokens.fill_(n_tokens)
        key = tuple(signature(batch) for batch in batches)
        if key in self.seen and key not in self.steps and len(self.steps) < MAX_GRAPHS:
            self.steps[key] = self.record(batches)
        self.seen.add(key)
        step = self.steps.get(key)
        if step is None:
            self.update(batches, self.n_tokens)
        else:
            step.replay(batches)

    def record(self, batches: Sequence[Tensors]) -> "RecordedStep | None":
        """None if a step cannot be recorded, for example because it reads a value on the host."""
        try:
            return RecordedStep(self.update, batches, self.n_tokens, self.pool)
        except RuntimeError as error:
            self.clear()
            shape = " × ".join(map(str, next(iter(vars(batches[0]).values())).shape))
            reason = str(error).splitlines()[0]
            console.print(f"batches of shape {shape} run without a CUDA graph: {reason}")
            return None


class RecordedStep:
    """The graph of a step for one shape, with the batches that it reads."""

    def __init__(self, update: Update, batches: Sequence[Tensors], n_tokens: Tensor, pool: Any) -> None:
        self.batches = [batch.map(torch.clone) for batch in batches]
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # The thread that prepares batches may allocate pinned memory meanwhile, hence thread_local.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            update(self.batches, n_tokens)

    def replay(self, batches: Sequence[Tensors]) -> None:
        for static, batch in zip(self.batches, batches):
            for field in fields(batch):  # type: ignore[arg-type]
                if isinstance(value := getattr(batch, field.name), Tensor):
                    getattr(static, field.name).copy_(value)
        self.graph.replay()


def signature(batch: Tensors) -> Hashable:
    """Everything in a batch that a graph depends on: shapes and types of tensors, and the other values."""
    values = ((field.name, getattr(batch, field.name)) for field in fields(batch) if field.name != "n_tokens")  # type: ignore[arg-type]
    return tuple((name, v.shape, v.dtype) if isinstance(v, Tensor) else (name, v) for name, v in values)
