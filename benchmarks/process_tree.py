"""The memory and the processor time of a process and all that it has started, from /proc."""

import os
import re
from pathlib import Path


def tree(pid=None):
    """Return the ids of a process, by default this one, and its descendants."""
    pid = pid or os.getpid()
    try:
        children = [
            int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()
        ]
    except OSError:  # it has just ended
        children = []
    return [pid, *(one for child in children for one in tree(child))]


def memory_mb(pid=None, name="VmRSS"):
    """Return the resident set of all these processes together: now, or with VmHWM the sum of their peaks."""
    found = [re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{one}/status").read_text()) for one in tree(pid)]
    return round(sum(int(match[1]) for match in found if match) / 1024)


def cpu_seconds(pid=None):
    """Return the processor time that these processes have used, in their own code and in the kernel."""
    fields = [Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split() for one in tree(pid)]
    return sum(int(row[11]) + int(row[12]) for row in fields) / os.sysconf("SC_CLK_TCK")
