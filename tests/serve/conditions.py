"""Waiting for a condition that another thread or process brings about."""

import time
from collections.abc import Callable


def eventually(is_true: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
