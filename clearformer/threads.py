"""The number of threads for small work on the CPU."""

import os
from functools import cache
from typing import Any

LITTLE_WORK = 4e7  # weights times rows: the bundled model with a beam of five


def use_few_threads(model: Any, n_rows: int) -> None:
    """Let torch use one thread in this process if few rows are decoded with a small model.

    With more threads, a step that takes half a millisecond gains next to nothing. But whenever another process has one
    of their cores, all others wait for that thread, and decoding takes many times as long. OMP_NUM_THREADS takes
    precedence.
    """
    import torch

    most_threads()
    n_weights = sum(parameter.numel() for parameter in model.parameters())
    if n_rows * n_weights <= LITTLE_WORK and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


@cache
def most_threads() -> int:
    """Return the number of threads that torch used first: OMP_NUM_THREADS, or the number of cores."""
    import torch

    return torch.get_num_threads()


def use_threads(n_weights: int, n_rows: int, most: int) -> None:
    """Let torch use one thread for little work, and otherwise `most`: for work that changes its size all the time."""
    import torch

    n = 1 if n_rows * n_weights <= LITTLE_WORK else most
    if n != torch.get_num_threads():
        torch.set_num_threads(n)
