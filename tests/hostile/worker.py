"""A process that reads many damaged files, one after the other, and prints a line of JSON before and after each.

    python worker.py SEEDS SCRATCH SEED FIRST LAST STEP      cases FIRST, FIRST + STEP … below LAST

A case is a function of (SEED, its number). Its memory is limited; the time is watched by the process that started this.
"""

import io
import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any

import seeds as seeding
from mutations import mutate
from targets import TARGETS

from clearformer.errors import ClearformerError, Interrupted

ROOM = 3 * 2**30  # of address space, beside what the process has at its start
MOST_WORDS = 4100  # characters of a message: more is not one sentence


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    n_bytes = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def peak_mb(is_reset: bool = False) -> int:
    """Return the peak of resident memory since it was last reset, in MB."""
    if is_reset:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 // 10**6


def prepare(names: list[str], seeds: dict[str, seeding.Seed], seed: int, case: int, scratch: Path) -> dict[str, Any]:
    """Copy a seed, damage one of its files, and describe the case."""
    random = Random(f"{seed} {case}")
    name = names[case % len(names)]
    chosen = seeds[name]
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    copy = scratch / chosen.path.name
    if chosen.path.is_dir():
        shutil.copytree(chosen.path, copy)
        if chosen.path.name == "adapter":
            shutil.copytree(chosen.path.parent / "writer", scratch / "writer")
        files = sorted(path for path in scratch.rglob("*") if path.is_file() and not path.name.endswith(".png"))
        file = random.choice(files or sorted(path for path in scratch.rglob("*") if path.is_file()))
    else:
        file = copy
        for path in chosen.path.parent.iterdir() if chosen.path.suffix == "" or "ubyte" in chosen.path.name else ():
            shutil.copy(path, scratch)
        shutil.copy(chosen.path, copy)
    target = random.choice(chosen.targets)
    return {
        "case": case, "group": chosen.group, "kind": name, "target": target, "file": file.name,
        "damage": mutate(file, random), "path": str(copy),
    }  # fmt: skip


def read(facts: dict[str, Any]) -> dict[str, Any]:
    """Read the damaged file. A case ends as `read`, `refused`, `traceback` or `memory`."""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[facts["target"]](Path(facts["path"]))
        return {"outcome": "read"}
    except ClearformerError as error:
        if len(str(error)) > MOST_WORDS:
            return {
                "outcome": "traceback",
                "error": f"a message of {len(str(error))} characters: {error.message[:300]}",
            }
        return {"outcome": "refused", "error": str(error)}
    except Interrupted:
        return {"outcome": "read"}
    except MemoryError as error:
        return {"outcome": "memory", "error": repr(error), "trace": traceback.format_exc()}
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if "/clearformer/" in frame.filename]
        place = f"{ours[-1].filename.split('/clearformer/')[-1]}:{ours[-1].name}" if ours else where[-1].name
        return {
            "outcome": "traceback", "error": f"{type(error).__name__}: {str(error)[:200]} in {place}",
            "trace": traceback.format_exc(),
        }  # fmt: skip


def main() -> None:
    folder, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    seed, first, last, step = map(int, sys.argv[3:7])
    kinds = sys.argv[7].split(",") if len(sys.argv) > 7 else []
    seeds = seeding.write_seeds(folder)
    names = [name for name in seeds if not kinds or name in kinds or seeds[name].group in kinds]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    limit_memory()
    for case in range(first, last, step):
        facts = prepare(names, seeds, seed, case, scratch)
        out.write(json.dumps(facts) + "\n")
        before = peak_mb(is_reset=True)
        start = time.process_time()
        result = read(facts)
        took, peak = time.process_time() - start, peak_mb()
        out.write(json.dumps({"case": case, "seconds": took, "mb": peak - before, **result}) + "\n")
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
