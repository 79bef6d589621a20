"""Read small files of unknown origin whole: settings, vocabularies, logs.

Only regular files are opened: a pipe may never end, and a device may have no end. The size is limited. Faults of the
content are ValueErrors, those of the file OSErrors.
"""

import errno
import json
import os
from pathlib import Path
from stat import S_ISREG
from typing import Any

MAX_BYTES = 2**28


def read_small(path: Path) -> str:
    """Return the UTF-8 text of a regular file of at most MAX_BYTES."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if status.st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
        return file.read().decode("utf-8")


def parse_json(text: str | bytes) -> Any:
    """json.loads, with a ValueError for values that are nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """Return the value in a JSON file."""
    return parse_json(read_small(path))
