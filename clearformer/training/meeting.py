"""Ranks that wait for each other as long as it takes, provided that those awaited are alive.

A collective of the process group gives up after `train.timeout`. But the first rank alone prepares the corpus and
writes files, and others may wait for hours. They wait here, and notice within the same time if a rank they wait for has
died or stopped: each rank counts in a store, from a thread of its own.
"""

import threading
import time
from typing import Any

from clearformer.errors import MachineError

POLLS = 0.02  # seconds between two looks at the store


class Meeting:
    """`store` is a store of torch.distributed that all ranks share. `seconds` is the longest silence of a rank."""

    def __init__(self, store: Any, rank: int, size: int, seconds: float) -> None:
        self.store, self.rank, self.size, self.seconds = store, rank, size, seconds
        self.n_met, self.is_over = 0, threading.Event()
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
        """Wait until all ranks are here. Raise if one that is missing no longer counts."""
        self.n_met += 1
        self.store.set(f"met/{self.n_met}/{self.rank}", "here")
        beats = dict.fromkeys(range(self.size), (-1, time.monotonic()))
        missing = [*beats]
        while missing := [rank for rank in missing if not self.store.check([f"met/{self.n_met}/{rank}"])]:
            for rank in missing:
                n, now = self.store.add(f"beat/{rank}", 0), time.monotonic()
                if n != beats[rank][0]:
                    beats[rank] = n, now
                elif now - beats[rank][1] > self.seconds:
                    raise lost(self.seconds)
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
