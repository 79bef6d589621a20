"""Read many damaged files of every kind, and count what happens: 0 tracebacks, 0 hangs, 0 crashes, memory below 2 GB.

    python tests/hostile/campaign.py --cases 100000 --seed 1 [--workers 2] [--json FILE] [--only sounds,hub]
    python tests/hostile/campaign.py --cases 20000 --seed 2 --accumulate --json FILE      added to the counts in FILE
    python tests/hostile/campaign.py --seed 1 --case 4711          one case, with its traceback

Cases are functions of (seed, number): the same command reads the same files. The exit status is 1 if any case failed.
Files are written to memory (/dev/shm) where there is such a folder, so that no case waits for a disk.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
OUTCOMES = ("read", "refused", "traceback", "memory", "hang", "crash")
BAD = OUTCOMES[2:]
SECONDS = 60  # a case that takes longer hangs
MOST_MB = 2000
MEMORY = Path("/dev/shm")


def run_worker(
    number: int, options: argparse.Namespace, seeds: Path, scratch: Path, results: "queue.Queue[Any]"
) -> None:
    """Read every `workers`-th case, in a process that is replaced when a case ends it."""
    case, last = number + options.first, options.first + options.cases
    while case < last:
        command = [sys.executable, str(HERE / "worker.py"), seeds, scratch / str(number), options.seed, case, last]
        command += [options.workers, *([options.only] if options.only else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CLEARFORMER_CACHE": os.devnull, "MALLOC_ARENA_MAX": "1"}
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        before = case
        for facts in watched(process):
            results.put(facts)
            case = facts["case"] + options.workers
        process.wait()
        if process.returncode and case == before:
            break  # it does not even start
    results.put(None)


def watched(process: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """Yield the finished cases of a process. The case in which it ends, or which it does not finish, comes last."""
    lines: queue.Queue[bytes] = queue.Queue()

    def copy() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(b"")

    errors: list[bytes] = []
    threading.Thread(target=copy, daemon=True).start()
    threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True).start()
    begun: dict[str, Any] = {}
    while True:
        line = next_line(lines, SECONDS if begun else 600)
        if line is None:
            process.kill()
            yield {**begun, "outcome": "hang", "seconds": SECONDS, "mb": 0}
            return
        if not line:
            if begun:
                yield {**begun, "outcome": "crash", "seconds": 0, "mb": 0, "error": b"".join(errors).decode()[-900:]}
            elif process.wait():
                sys.stderr.write(b"".join(errors).decode())
            return
        facts = json.loads(line)
        if not begun:
            begun = facts
        else:
            result = {**begun, **facts}
            if result["outcome"] in ("read", "refused") and result["mb"] > MOST_MB:
                result["outcome"] = "memory"
            yield result
            begun = {}


def next_line(lines: "queue.Queue[bytes]", seconds: int) -> bytes | None:
    """Wait for a line, second by second: if this process is stopped for a while, the while counts as one second."""
    for _ in range(seconds):
        with suppress(queue.Empty):
            return lines.get(timeout=1)
    return None


def show(options: argparse.Namespace, seeds: Path, scratch: Path) -> None:
    """Read one case in a process of its own, and print what happens."""
    options.first, options.cases, options.workers = options.case, 1, 1
    results: queue.Queue[Any] = queue.Queue()
    run_worker(0, options, seeds, scratch, results)
    for facts in iter(results.get, None):
        print(facts.pop("trace", ""), json.dumps(facts, indent=2), sep="\n")


def report(counts: dict[str, Counter[str]], kinds: Counter[str], peak: float, longest: float) -> None:
    print(f"{'':14}" + "".join(f"{name:>11}" for name in ("cases", *OUTCOMES)))
    for group in [*sorted(counts), "all"]:
        row = sum(counts.values(), Counter()) if group == "all" else counts[group]
        print(f"{group:14}" + "".join(f"{n:11,}" for n in (row.total(), *(row[name] for name in OUTCOMES))))
    print(f"{len(kinds)} kinds of files; at most {peak:,.0f} MB and {longest:.1f} s of processor time for one case")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    parser.add_argument("--accumulate", action="store_true", help="add the counts to those in the file of --json")
    parser.add_argument("--seeds", type=Path, help="folder of the valid files, kept for another campaign")
    parser.add_argument("--only", default="", help="kinds or groups of files, with commas")
    parser.add_argument("--case", type=int, help="read this case alone, and show its traceback")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.accumulate:
        require_new(options)
    with TemporaryDirectory(prefix="hostile-", dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        seeds, scratch = options.seeds or Path(temporary) / "seeds", Path(temporary) / "scratch"
        sys.path.insert(0, str(HERE))
        from seeds import write_seeds

        write_seeds(seeds)
        if options.case is not None:
            show(options, seeds, scratch)
            return 0
        return campaign(options, seeds, scratch)


def campaign(options: argparse.Namespace, seeds: Path, scratch: Path) -> int:
    results: queue.Queue[Any] = queue.Queue()
    for number in range(options.workers):
        threading.Thread(target=run_worker, args=(number, options, seeds, scratch, results), daemon=True).start()
    counts: dict[str, Counter[str]] = {}
    kinds, errors, by_target = Counter[str](), Counter[str](), Counter[str]()
    peak, longest, start, open_workers = 0.0, 0.0, time.monotonic(), options.workers
    while open_workers:
        facts = results.get()
        if facts is None:
            open_workers -= 1
            continue
        counts.setdefault(facts["group"], Counter())[facts["outcome"]] += 1
        kinds[facts["kind"]] += 1
        by_target[facts["target"]] += facts["seconds"]
        peak, longest = max(peak, facts["mb"]), max(longest, facts["seconds"])
        if facts["outcome"] in BAD:
            error = f"{facts['outcome']}: {facts.get('error', '')}"
            if errors[error] < 3:
                place = f"{facts['kind']}, {facts['target']}, {facts['damage']} in {facts['file']}"
                print(f"case {facts['case']}, {place}: {error}", flush=True)
            errors[error] += 1
    report(counts, kinds, peak, longest)
    print("seconds by reader: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in by_target.most_common()))
    if options.json is not None:
        table = {
            group: {"cases": row.total(), **{name: row[name] for name in OUTCOMES}} for group, row in counts.items()
        }
        facts = {"cases": sum(kinds.values()), "groups": table, "kinds": dict(sorted(kinds.items()))}
        facts |= {"peak_mb": peak, "longest_seconds": round(longest, 2), "seconds": round(time.monotonic() - start)}
        write(facts, options)
    return int(any(row[name] for row in counts.values() for name in BAD))


def require_new(options: argparse.Namespace) -> None:
    """Refuse to count cases twice."""
    known = campaigns_of(json.loads(options.json.read_text())) if options.json and options.json.exists() else []
    if any(campaign["seed"] == options.seed for campaign in known):
        sys.exit(f"{options.json} has the cases of seed {options.seed} already; give another --seed")


def write(facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the counts. `campaigns` has the cases, seed and commit of each campaign that is counted."""
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    from provenance import record, stamp

    command = f"python tests/hostile/campaign.py --cases {options.cases} --seed {options.seed}"
    stamped = stamp(command + " --accumulate" * options.accumulate)
    campaigns = [{"cases": facts["cases"], "seed": options.seed, "first": options.first, "commit": stamped["commit"]}]
    if options.accumulate and options.json.exists():
        before = json.loads(options.json.read_text())
        campaigns = campaigns_of(before) + campaigns
        facts = added(before, facts)
    record({**facts, "campaigns": campaigns, **stamped}, options.json)


def campaigns_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    keys = ("cases", "seed", "commit")
    return facts.get("campaigns") or [{key: facts[key] for key in keys}]


def added(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Add the counts of two campaigns; of peaks and longest times, the larger counts."""
    groups = {}
    for group in [*one["groups"], *(two["groups"].keys() - one["groups"].keys())]:
        rows = [facts["groups"].get(group, {}) for facts in (one, two)]
        groups[group] = {name: sum(row.get(name, 0) for row in rows) for name in ("cases", *OUTCOMES)}
    kinds = Counter(one["kinds"]) + Counter(two["kinds"])
    sums = {name: one[name] + two[name] for name in ("cases", "seconds")}
    largest = {name: max(one[name], two[name]) for name in ("peak_mb", "longest_seconds")}
    return {**sums, "groups": groups, "kinds": dict(sorted(kinds.items())), **largest}


if __name__ == "__main__":
    sys.exit(main())
