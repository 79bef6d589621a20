"""Ctrl-C, politely: finish the step, save, then stop."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ctrl_c() -> Iterator[list[int]]:
    """Inside, Ctrl-C (or a polite kill) only leaves a note in the list; a second one interrupts at once, as usual."""
    note: list[int] = []

    def handler(number: int, frame: Any) -> None:
        if note:
            raise KeyboardInterrupt
        note.append(number)
        os.write(2, b"\nstopping: this step will be finished and saved; once more stops at once\n")

    try:
        old = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there takes care of signals
        old = {}
    try:
        yield note
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
