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
from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import Tensors
from clearformer.errors import TrainingError
from clearformer.layers.fixed_shapes import FIXED_SHAPES, RECORDING

MAX_GRAPHS = 16  # recorded shapes; further shapes run as plain steps

Update = Callable[[Sequence[Tensors], Tensor], None]


class Graphs:
    """`update(batches, n_tokens)`, recorded for the first MAX_GRAPHS shapes that occur twice; plain for others."""

    def __init__(self, update: Update, device: torch.device) -> None:
        self.update, self.seen, self.steps = update, set[Hashable](), dict[Hashable, RecordedStep]()
        self.n_tokens = torch.ones((), device=device)
        self.pool = torch.cuda.graph_pool_handle()  # memory that all graphs reuse: only one runs at a time

    def __call__(self, batches: Sequence[Tensors], n_tokens: int) -> None:
        self.n_tokens.fill_(n_tokens)
        key = tuple(batch.signature() for batch in batches)
        has_room = len(self.steps) < MAX_GRAPHS
        if key in self.seen and key not in self.steps and has_room:
            self.steps[key] = RecordedStep(self.update, batches, self.n_tokens, self.pool)
        if key in self.steps:
            self.steps[key].replay(batches)
        elif has_room or torch.are_deterministic_algorithms_enabled():
            with FIXED_SHAPES:  # the kernels that will be recorded
                self.update(batches, self.n_tokens)
            self.seen.add(key)
        else:
            self.update(batches, self.n_tokens)

    def plain(self, batches: Sequence[Tensors], n_tokens: int) -> None:
        """A step that is not recorded, with the kernels of a recorded step: its gradients can be looked at."""
        self.n_tokens.fill_(n_tokens)
        with FIXED_SHAPES:
            self.update(batches, self.n_tokens)


class RecordedStep:
    """The graph of a step for one shape, with the batches that it reads.

    A recording that fails leaves the stream and the generator of the device unusable, so the run ends; the last
    checkpoint is intact.
    """

    def __init__(self, update: Update, batches: Sequence[Tensors], n_tokens: Tensor, pool: Any) -> None:
        self.batches = [batch.map(torch.clone) for batch in batches]
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            # The thread that prepares batches may allocate pinned memory meanwhile, hence thread_local.
            with RECORDING, FIXED_SHAPES, torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
                update(self.batches, n_tokens)
        except RuntimeError as error:
            raise TrainingError(
                f"a training step cannot be recorded as a CUDA graph: {str(error).splitlines()[0]}",
                "train without graphs: --set train.compile=off",
            ) from error

    def replay(self, batches: Sequence[Tensors]) -> None:
        for static, batch in zip(self.batches, batches):
            for name, value in vars(batch).items():
                if isinstance(value, Tensor):
                    getattr(static, name).copy_(value)
        self.graph.replay()
