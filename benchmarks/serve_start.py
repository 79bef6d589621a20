"""From the start of `clearformer serve` to the first answer, beside `import torch`.

    python benchmarks/serve_start.py [--rounds 5] [--out FILE]

Each round starts `python -c "import torch"` and then a server of the bundled translator, as new processes; an uncounted
first round warms the caches of files and bytecode. The first answer is that of the request which the server prints, run
by bash as soon as it is printed. The difference to `import torch` is taken within each round; all numbers are medians.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from provenance import RESULTS, record, stamp


def import_torch():
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - begin


def first_answer():
    """Return the seconds until the server says that it is ready, and until its first answer."""
    begin = time.perf_counter()
    words = [sys.executable, "-m", "clearformer", "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        line = server.stdout.readline()
        ready = time.perf_counter() - begin
        answer = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
        answered = time.perf_counter() - begin
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    if json.loads(answer)["translations"][0]["translation"] != "Où est la gare ?":
        raise SystemExit(answer.decode())
    return ready, answered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "serve-start.json")
    arguments = parser.parse_args()
    rounds = [(import_torch(), *first_answer()) for _ in range(arguments.rounds + 1)][1:]
    imported, ready, answered = (statistics.median(column) for column in zip(*rounds))
    beyond = statistics.median(answered - imported for imported, _, answered in rounds)
    record(
        {
            "import_torch_seconds": round(imported, 2),
            "ready_seconds": round(ready, 2),
            "first_answer_seconds": round(answered, 2),
            "beyond_import_torch_seconds": round(beyond, 2),
            "rounds": arguments.rounds,
            **stamp(f"python benchmarks/serve_start.py --rounds {arguments.rounds}"),
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
