"""Signals that end a process: Ctrl-C, SIGTERM (a scheduler), SIGHUP (a closed terminal), SIGUSR1 (a SLURM warning).

handling         another handler for all of them
after_imports    a handler to which a signal comes when no module is being imported
postponed        a signal waits until the end of the block, for code that must not be interrupted
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]
IMPORT = "<frozen importlib._bootstrap>"  # the file name of the frames that import a module
AGAIN, PATIENCE = 0.05, 30.0  # seconds until a signal that waits is sent again; and until it waits no longer


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


def after_imports(handler: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
    """Return a handler to which a signal comes when no module is being imported.

    An import that a handler interrupts by an exception may go on half-way: torch, for example, ignores any error of its
    own import of numpy, whose functions fail later.
    """
    since: dict[int, float] = {}

    def handle(number: int, frame: Any) -> None:
        if is_importing(frame) and time.monotonic() - since.setdefault(number, time.monotonic()) < PATIENCE:
            send_again(number)
        else:
            handler(number, frame)

    return handle


def is_importing(frame: Any) -> bool:
    """Whether the code that a signal has reached is called, however deep, by an import."""
    while frame is not None and frame.f_code.co_filename != IMPORT:
        frame = frame.f_back
    return frame is not None


def send_again(number: int) -> None:
    """Send a signal to this thread, the main one, a little later."""
    to, send = threading.get_ident(), getattr(signal, "pthread_kill", None)  # which also ends a wait of the thread
    timer = threading.Timer(AGAIN, lambda: send(to, number) if send else signal.raise_signal(number))
    timer.daemon = True
    timer.start()


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
