"""Signals that end a process: Ctrl-C, SIGTERM (a scheduler), SIGHUP (a closed terminal), SIGUSR1 (a SLURM warning).

handling     another handler for all of them
postponed    a signal waits until the end of the block, for code that must not be interrupted
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]


@contextmanager
def handling(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle SIGNALS inside the context, except those that the caller ignores, as `nohup` ignores SIGHUP.

    In other threads than the main one nothing changes: signals are the responsibility of the caller there.
    """
    old: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) not in (signal.SIG_IGN, None):
                old[number] = signal.signal(number, handler)
    except ValueError:  # not in the main thread
        pass
    try:
        yield
    finally:
        for number, previous in old.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


@contextmanager
def postponed() -> Iterator[None]:
    """Inside the context, signals wait. The first one is sent again at its end.

    An extension of Python whose import is interrupted may end the process with SIGABRT, as those of matplotlib do.
    """
    waiting: list[int] = []
    try:
        with handling(lambda number, frame: waiting.append(number)):
            yield
    finally:
        for number in waiting[:1]:
            signal.raise_signal(number)
