"""How much memory is free: of the machine, and of the control group that a container or a service manager gives."""

import resource
import time
from pathlib import Path

from clearformer.serve.refusals import Refused, later

MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
SECONDS = 0.25  # a value is used again for this long


def free_memory(meminfo: Path = MEMINFO, group: Path = GROUP) -> int | None:
    """Return the bytes that can still be allocated, None if this system does not tell.

    Memory that only caches files counts as free.
    """
    known = [free for free in (free_of_machine(meminfo), free_of_group(group)) if free is not None]
    return min(known, default=None)


def free_of_machine(meminfo: Path) -> int | None:
    try:
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return None


def free_of_group(group: Path) -> int | None:
    """Return the limit of a control group (version 2) less what is used; None without a limit."""
    try:
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(rows["inactive_file"])
    except (OSError, ValueError, KeyError):
        return None


class Pressure:
    """Refuses work while less than `least` bytes of memory are free."""

    def __init__(self, least: int) -> None:
        self.least, self.free, self.read_at = least, 0, float("-inf")

    def check(self) -> None:
        if (now := time.monotonic()) - self.read_at > SECONDS:
            free = free_memory()
            self.free, self.read_at = self.least if free is None else free, now
        if self.free < self.least:
            raise Refused(503, "the server has too little free memory", "try again later", "memory", None, later(5))


def resident_memory(process: int | str = "self") -> int:
    """Return the bytes of memory that a process has; 0 if it has ended, or if this system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
