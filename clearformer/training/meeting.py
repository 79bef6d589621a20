"""Ranks that wait for each other as long as it takes, provided that those awaited are alive.

A collective of the process group gives up after `train.timeout`. But the first rank alone prepares the corpus and
writes files, and others may wait for hours. They wait here, and notice within the same time if a rank they wait for has
died or stopped: each rank counts in a store, from a thread of its own.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from clearformer.errors import MachineError

POLLS = 0.02  # seconds between two looks at the store


class Meeting:
    """`store` is a store of torch.distributed that all ranks share. `seconds` is the longest silence of a rank."""

    def __init__(self, store: Any, rank: int, size: int, seconds: float) -> None:
        self.store, self.rank, self.size, self.seconds = store, rank, size, seconds
        self.n_met, self.is_over = 0, threading.Event()
        self.answered = time.monotonic()  # when the store answered last, while ranks meet
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()

    def beat(self) -> None:
        """Count, until the end."""
        while not self.is_over.wait(min(2.0, self.seconds / 10)):
            try:
                self.store.add(f"beat/{self.rank}", 1)
            except RuntimeError:  # the store has ended
                return

    def barrier(self) -> None:
        """Wait until all ranks are here. Raise if one that is missing no longer counts.

        A store never answers if the process that holds it has stopped. So it is asked from another thread.
        """
        self.n_met += 1
        self.answered, self.failure = time.monotonic(), None
        asking = threading.Thread(target=self.ask, args=(f"met/{self.n_met}",), daemon=True)
        asking.start()
        while asking.is_alive():
            asking.join(POLLS)
            if time.monotonic() - self.answered > self.seconds:
                raise lost(self.seconds)
        if self.failure is not None:
            raise self.failure

    def ask(self, place: str) -> None:
        """Ask the store until all ranks have met at this place, or one is lost."""
        try:
            self.store.set(f"{place}/{self.rank}", "here")
            self.watch({rank: f"{place}/{rank}" for rank in range(self.size)})
        except Exception as error:  # the store has ended, or a rank is lost; without it, all would seem to be here
            self.failure = error

    def watch(self, keys: Mapping[int, str]) -> None:
        """Ask the store until each of some ranks has set its key. Raise if one that has not no longer counts."""
        beats = dict.fromkeys(keys, (-1, time.monotonic()))
        missing = [*beats]
        while missing := [rank for rank in missing if not self.store.check([keys[rank]])]:
            for rank in missing:
                n, now = self.store.add(f"beat/{rank}", 0), time.monotonic()
                if n != beats[rank][0]:
                    beats[rank] = n, now
                elif now - beats[rank][1] > self.seconds:
                    raise lost(self.seconds)
            self.answered = time.monotonic()
            time.sleep(POLLS)

    def end(self) -> None:
        self.is_over.set()
        self.thread.join(1)


def lost(seconds: float) -> MachineError:
    return MachineError(
        f"another process of this run has ended, or has not answered for {seconds:g} s (train.timeout)",
        "its own messages say why; the same command, started again, continues from the last checkpoint",
    )


def is_lost(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed says that another process cannot be reached."""
    message = str(error)
    return any(word in message for word in ("gloo", "NCCL", "Connection", "connection", "Timed out", "timed out"))
