"""Ctrl-C and SIGTERM: finish the step, save a checkpoint, then stop."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ctrl_c() -> Iterator[list[int]]:
    """Inside the context, Ctrl-C or SIGTERM appends to the list; a second signal interrupts at once."""
    note: list[int] = []

    def handler(number: int, frame: Any) -> None:
        if note:
            raise KeyboardInterrupt
        note.append(number)
        os.write(2, b"\nstopping after this step and saving a checkpoint; press Ctrl-C again to stop at once\n")

    try:
        old = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are the caller's responsibility
        old = {}
    try:
        yield note
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
