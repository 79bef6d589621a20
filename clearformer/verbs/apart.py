"""Train in a separate process, so that a run does not inherit the memory or the warm caches of another."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from clearformer.checkpoint import RunFolder
from clearformer.errors import ClearformerError, Interrupted, MachineError
from clearformer.recipe import Recipe
from clearformer.verbs.train import train


def train_apart(
    recipe: Recipe, run: RunFolder, device: str, settings: Sequence[str] = (), threads: int | None = None
) -> None:
    """Train or resume a run in a separate process. Its errors are raised here unchanged.

    `settings` change the saved recipe when a run is resumed, and `threads` limits the CPU threads of torch.
    """
    arguments: dict[str, Any] = {"resume": True, "settings": settings} if run.exists else {"recipe": recipe}
    arguments |= {"out": run.path, "device": device}
    context = get_context("spawn")  # a fork would inherit torch's threads in an undefined state
    incoming, outgoing = context.Pipe(duplex=False)
    process = context.Process(target=train_here, args=(outgoing, arguments, threads))
    process.start()
    outgoing.close()
    try:
        error = incoming.recv()
    except EOFError:
        process.join()  # the exit code is not set before
        raise MachineError(
            f"the run in {run.path} stopped with exit code {process.exitcode}",
            "repeat the command to resume; a negative exit code is a signal, such as -9 when memory runs out",
        ) from None
    finally:
        process.join()  # both processes receive Ctrl-C, and the run saves its checkpoint first
    if error is not None:
        raise error


def train_here(outgoing: Connection, arguments: dict[str, Any], threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    Thread(target=stop_without_parent, daemon=True).start()
    error: BaseException | None = None
    try:
        train(**arguments)
    except (ClearformerError, Interrupted) as raised:
        error = raised
    with suppress(BrokenPipeError):  # the caller was killed
        outgoing.send(error)


def stop_without_parent() -> None:
    """Save a checkpoint and stop when the caller is killed, so that a repeated call can resume the run."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
