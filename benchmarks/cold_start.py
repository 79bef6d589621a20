"""Start-up time of the command: one sentence translated with the bundled model, from a new process to its end.

    python benchmarks/cold_start.py [--rounds 11] [--out FILE]

The reference is `python -c "import torch"`, which every command that runs a model has to do. Each round starts every
command once, in turn, as a new process; an uncounted first round warms the caches of files and bytecode. `seconds` is
the time to the end of the process, `last_word` the time to the end of its output; both are medians over the rounds.
The difference to the reference is taken within each round, because other work on the machine slows down both.

`cores_used_elsewhere` is the processor time that other processes took per second of each command, on Linux. It must be
near 0: threads that wait for a core that is taken slow down the translation, but not `import torch`, which has one
thread. The row with one thread shows how much of a difference is due to this.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from provenance import RESULTS, record, stamp

TRANSLATE = ("translate", "--model", "en-fr-small", "The cat sleeps.")
# what the script that pip installs as `clearformer` runs
SCRIPT = "import sys; from clearformer.cli import main; sys.exit(main())"
REFERENCE = "import torch"
COMMANDS = {
    REFERENCE: ("-c", "import torch"),
    "clearformer translate": ("-c", SCRIPT, *TRANSLATE),
    "python -m clearformer translate": ("-m", "clearformer", *TRANSLATE),
    "OMP_NUM_THREADS=1 clearformer translate": ("-c", SCRIPT, *TRANSLATE),
    "clearformer --help": ("-c", SCRIPT, "--help"),
    "clearformer --version": ("-c", SCRIPT, "--version"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path, default=RESULTS / "cold-start.json")
    args = parser.parse_args()
    for name in COMMANDS:
        start(name)
    rounds = [{name: start(name) for name in COMMANDS} for _ in range(args.rounds)]
    commands = {name: summary(name, rounds) for name in COMMANDS}
    where = stamp(f"python benchmarks/cold_start.py --rounds {args.rounds}")
    record({"commands": commands, "rounds": args.rounds, "arguments": TRANSLATE, **where}, args.out)


def start(name):
    """Seconds from the start of a new process to its last byte of output and to its end, and cores used elsewhere."""
    words = COMMANDS[name]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    if name.startswith("OMP_NUM_THREADS=1 "):
        environment["OMP_NUM_THREADS"] = "1"
    begun, elsewhere = time.perf_counter(), busy_elsewhere()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, env=environment) as process:
        spoken = 0.0
        while os.read(process.stdout.fileno(), 1 << 16):
            spoken = time.perf_counter() - begun
        process.wait()
    seconds = time.perf_counter() - begun
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    return spoken, seconds, max(0.0, busy_elsewhere() - elsewhere) / seconds


def busy_elsewhere():
    """Processor seconds of all other processes since the start of the machine; NaN where /proc is missing."""
    if not Path("/proc/stat").exists():
        return float("nan")
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return busy - sum(one.ru_utime + one.ru_stime for one in usage)


def summary(name, rounds):
    words, seconds, elsewhere = zip(*(one[name] for one in rounds))
    floor = [one[REFERENCE][1] for one in rounds]
    beyond = [ours - theirs for ours, theirs in zip(seconds, floor)]
    row = {
        "seconds": round(statistics.median(seconds), 3),
        "range": [round(min(seconds), 3), round(max(seconds), 3)],
        "ratio": round(statistics.median(seconds) / statistics.median(floor), 2),
        "cores_used_elsewhere": round(statistics.median(elsewhere), 2),
    }
    if name != REFERENCE:
        row["last_word"] = round(statistics.median(words), 3)
        row["beyond_import_torch"] = round(statistics.median(beyond), 3)
        row["beyond_range"] = [round(min(beyond), 3), round(max(beyond), 3)]
    return row


if __name__ == "__main__":
    main()
