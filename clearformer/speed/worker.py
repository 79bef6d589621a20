"""One measurement in a separate process: `python -m clearformer.speed.worker JOB` prints one JSON object.

A job is {"call": "module:function", "context": …, "options": …}; with "parent", the id of a process, the worker and its
children end as soon as that process has ended, however it ended. Separate processes keep libraries from sharing an
OpenMP runtime, a memory pool or a CUDA context; nothing heavy is imported before the function is.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from clearformer.speed.context import Context


def run(job: Mapping[str, Any]) -> Any:
    module, function = job["call"].split(":")
    return getattr(import_module(module), function)(Context(**job["context"]), **job["options"])


def end_with(parent: int) -> None:
    """Kill the process group of this worker once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    if "parent" in job:
        threading.Thread(target=end_with, args=(job["parent"],), daemon=True).start()
    result = run(job)
    print(json.dumps(result), flush=True)
