"""Which of several sets of weights each row of a batch uses, as with LoRA adapters (tuning/row_adapters.py)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

PRESENT = threading.local()


@contextmanager
def rows_choose(numbers: Tensor) -> Iterator[None]:
    """Let layers use these sets of weights in this thread: numbers (B, 1), or (1, T) by position; 0 means the base."""
    before, PRESENT.numbers = row_choice(), numbers
    try:
        yield
    finally:
        PRESENT.numbers = before


def row_choice() -> Tensor | None:
    return getattr(PRESENT, "numbers", None)
