"""Whether an engine is stuck: it has work, but no step has ended for 30 seconds.

Work that is not divided into steps has the time that its client allows, if that is longer.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

STUCK_SECONDS = 30.0


class Watchdog:
    """`progress` is when the last step ended, or work came after a pause."""

    def __init__(self) -> None:
        self.progress, self.patient_until = time.monotonic(), 0.0

    def progressed(self) -> None:
        self.progress = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether there should have been progress by now, if there is work."""
        return time.monotonic() > max(self.progress + STUCK_SECONDS, self.patient_until)

    @contextmanager
    def patient(self, until: float | None) -> Iterator[None]:
        """Wait for work that may take until its deadline, if it has one."""
        self.patient_until = until or 0.0
        try:
            yield
        finally:
            self.progressed()
            self.patient_until = 0.0
