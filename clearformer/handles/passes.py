"""Passes of a network over batches of inputs, which a caller can watch and stop.

    for batch in in_passes(batches, n): …           one pass for each batch; a notebook shows their progress
    with watched(look): handle.embed(texts)         look() before every pass, in this thread; its errors stop them

A recording is read in a single pass, however long it is: there, `look` is also called before every layer.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

from clearformer.notebook import tracked

Batch = TypeVar("Batch")
Look = Callable[[], None]
PRESENT = threading.local()


@contextmanager
def watched(look: Look) -> Iterator[None]:
    before, PRESENT.look = present(), look
    try:
        yield
    finally:
        PRESENT.look = before


def present() -> Look | None:
    return getattr(PRESENT, "look", None)


def in_passes(batches: Iterable[Batch], total: int) -> Iterator[Batch]:
    """Yield batches of `total` inputs together."""
    for batch in tracked(batches, total):  # type: ignore[type-var]
        if (look := present()) is not None:
            look()
        yield batch


@contextmanager
def watched_layers(model: nn.Module) -> Iterator[None]:
    """Look before every layer of a long pass, if there is a caller that looks."""
    look = present()
    hooks = [] if look is None else [layer.register_forward_pre_hook(lambda *_: look()) for layer in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
