"""Signals that end a run (signals.py): what is done first.

stoppable       a signal ends the process at once, with the exit code 128 + n: there is nothing to save
noted           a signal is kept: the loop completes its step, saves a checkpoint, and ends with the same exit code
leaving_early   a signal that is kept ends a validation before the next module of the model computes
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clearformer.errors import Interrupted, Stopped
from clearformer.signals import after_imports, handling

SAYS = b"\nstopping after this step and saving a checkpoint; press Ctrl-C again to stop at once\n"


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the context, a signal raises `Stopped`, so that files are closed and drafts removed on the way out."""
    raised: list[int] = []

    def handler(number: int, frame: Any) -> None:
        raised.append(number)
        raise Stopped(number)

    with handling(after_imports(handler)), still_stopped(raised):
        yield


@contextmanager
def still_stopped(raised: list[int]) -> Iterator[None]:
    """Any error that follows a `Stopped` is its consequence: extension modules replace it by errors of their own.

    pydantic, for example, ends with a SchemaError if the building of a class is interrupted.
    """
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        if raised:
            raise Stopped(raised[0]) from error
        raise


@contextmanager
def noted(finishes_step: Callable[[], bool] = lambda: True) -> Iterator[list[int]]:
    """Inside the context, a signal is appended to the list. A second Ctrl-C interrupts at once.

    Other signals may come twice, from a launcher and from a scheduler, and must not interrupt the saving. If the step
    is not to be finished, as the first one, in which a model is compiled, a signal raises `Stopped` at once.
    """
    note, raised = list[int](), list[int]()

    def handler(number: int, frame: Any) -> None:
        if not finishes_step():
            raised.append(number)
            raise Stopped(number)
        if note and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not note:
            os.write(2, SAYS)
        note.append(number)

    with handling(after_imports(handler)), still_stopped(raised):
        yield note


@contextmanager
def leaving_early(note: list[int], poll: Callable[[Any, int], int] | None = None) -> Iterator[None]:
    """Inside the context, modules raise `Stopped` instead of computing as soon as a signal is noted.

    With `poll`, it decides: it is given the module and the signal or 0, and returns the signal to stop for or 0.
    """
    from torch.nn.modules.module import register_module_forward_pre_hook

    def check(module: Any, inputs: Any) -> None:
        number = note[0] if note else 0
        if number := number if poll is None else poll(module, number):
            raise Stopped(number)

    hook = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()
