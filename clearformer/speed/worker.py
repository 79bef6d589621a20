"""One measurement in a separate process: `python -m clearformer.speed.worker JOB` prints one JSON object.

A job is {"call": "module:function", "context": …, "options": …}. Separate processes keep libraries from sharing an
OpenMP runtime, a memory pool or a CUDA context; nothing heavy is imported before the function is.
"""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from clearformer.speed.context import Context


def run(job: Mapping[str, Any]) -> Any:
    module, function = job["call"].split(":")
    return getattr(import_module(module), function)(Context(**job["context"]), **job["options"])


if __name__ == "__main__":
    result = run(json.loads(sys.argv[1]))
    print(json.dumps(result), flush=True)
