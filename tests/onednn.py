"""What oneDNN compiles: it keeps a program for every operation and shape, by the hundred."""

import os
import subprocess
import sys


def programs(code: str) -> list[str]:
    """Run Python code in a process of its own, and return the kind of each program that oneDNN compiles there."""
    command, environment = [sys.executable, "-c", code], {**os.environ, "ONEDNN_VERBOSE": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("onednn_verbose") and "create" in line]
    return [line.split(",create:cache_miss,cpu,")[1].split(",")[0] for line in lines if ",create:cache_miss," in line]
