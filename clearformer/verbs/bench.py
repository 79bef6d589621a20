"""bench: measure this machine, our side and other libraries in turn, row by row, and save the results."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearformer.checkpoint import versions, write_json
from clearformer.errors import ConfigError
from clearformer.speed.context import Context
from clearformer.speed.rows import Engine, Row, chosen
from clearformer.speed.runner import MeasurementError, installed, measure_row, run_job
from clearformer.verbs.doctor import examine_cuda, usable_threads
from clearformer.wording import count

PACKAGES = ("transformers", "ctranslate2", "numpy")


def bench(
    only: Sequence[str] = (),
    *,
    quick: bool = False,
    repeats: int | None = None,
    out: str | Path | None = None,
    data: str | Path | None = None,
    nanogpt: str | Path | None = None,
    say: Callable[[str], None] = print,
    command: str = "clearformer bench",
    update: bool = False,
) -> dict[str, Any]:
    """Measure the rows with these names (by default the rows for this machine), and return the results.

    Each side of a row runs `repeats` times in a separate process, by default three times, with `quick` once. The
    results are also written to `out` after each row, so that Ctrl-C loses nothing but the row at hand. With `update`,
    the other rows of an existing file are kept.
    """
    has_gpu = bool(examine_cuda()["devices"])
    rows = chosen(only, has_gpu)
    checkout = None if nanogpt is None else require(Path(nanogpt), "model.py", "--nanogpt")
    corpora = None if data is None else require(Path(data), "", "--data")
    results = provenance(command, checkout)
    if update and out is not None and Path(out).exists():
        results["rows"] = other_rows(Path(out), results["versions"])
    origin = {key: results[key] for key in ("command", "commit", "date")}
    threads = int(os.environ.get("OMP_NUM_THREADS") or usable_threads())
    results["load"] = round(os.getloadavg()[0], 1)
    if results["load"] > threads / 2:
        say(f"other processes are busy (load {results['load']} on {count(threads, 'thread')}): timings will vary")
    work = tempfile.mkdtemp(prefix="clearformer-bench-")
    base = Context(work, "", 0, "cpu", threads, quick, corpora, checkout)
    try:
        stop_by_sigterm()
        for device in sorted({device_of(row, has_gpu) for row in rows} - {None}, reverse=True):
            results["ceilings"] += measure_ceilings(replace(base, device=device), say)
        for i, row in enumerate(rows, 1):
            device = device_of(row, has_gpu)
            if device is None:
                say(f"{row.name} is skipped: there is no GPU")
                results["rows"][row.name] = skipped(row, "there is no GPU")
            else:
                say(f"{row.name} ({i} of {len(rows)}): {row.work}")
                repeated = repeats or (1 if quick else 3)
                results["rows"][row.name] = measure_row(row, replace(base, device=device), repeated, say) | origin
            if out is not None:
                write_json(Path(out), results)
    except KeyboardInterrupt:
        results["interrupted"] = True
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if out is not None:
        write_json(Path(out), results)
    return results


def other_rows(file: Path, versions_now: dict[str, Any]) -> dict[str, Any]:
    """The rows of a file, which must come from the same machine and the same versions."""
    try:
        results = json.loads(file.read_text(encoding="utf-8"))
        rows, versions_then = dict(results["rows"]), dict(results["versions"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} holds no results of bench", "choose another --out") from error
    for name in sorted({*versions_now, *versions_then} - {"nanogpt"}):
        then, now = versions_then.get(name, "nothing"), versions_now.get(name, "nothing")
        if then != now:
            raise ConfigError(f"{file} was measured with {name} {then}, not {now}", "choose another --out")
    return rows


def stop_by_sigterm() -> None:
    """Treat SIGTERM, which `timeout` and job schedulers send, as Ctrl-C, so that the rows so far are kept."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def listing() -> list[dict[str, Any]]:
    """The rows that can be measured: name, work, device and peers."""
    return [
        {"name": row.name, "work": row.work, "device": row.device, "peers": [peer.title for peer in row.peers]}
        for row in chosen([], has_gpu=False)
    ]


def require(folder: Path, file: str, option: str) -> str:
    """Return the absolute path of a folder; raise an error unless it contains this file."""
    if not folder.is_dir() or not (folder / file).exists():
        missing = f"it has no {file}" if folder.is_dir() else "there is no such folder"
        raise ConfigError(f"{option} {folder}: {missing}", f"give an existing folder with {option}")
    return str(folder.resolve())


def device_of(row: Row, has_gpu: bool) -> Any:
    """The device that a row runs on, or None if it needs a GPU and there is none."""
    if row.device == "any":
        return "cuda" if has_gpu else "cpu"
    return row.device if has_gpu or row.device == "cpu" else None


def skipped(row: Row, reason: str) -> dict[str, Any]:
    return {"work": row.work, "unit": row.unit, "device": row.device, "engines": {}, "skipped": reason}


def measure_ceilings(context: Context, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure what the device reaches. A failure is reported, and the rows follow."""
    say(f"ceilings of {context.device}")
    try:
        return [run_job(Engine("ceilings", "ceilings", "clearformer.speed.ceilings:measure"), context)]
    except MeasurementError as error:
        say(f"ceilings of {context.device} failed: {error}")
        return []


def provenance(command: str, checkout: str | None) -> dict[str, Any]:
    """The results before the first row: command, commit, versions and date."""
    packages = {name: number for name in PACKAGES if (number := installed(name)) is not None}
    nanogpt = {} if checkout is None else {"nanogpt": commit_of(checkout)}
    return {
        "command": command,
        "commit": os.environ.get("COMMIT") or commit_of(str(Path(__file__).parents[2])),
        "versions": {**versions(), **packages, **nanogpt},
        "date": time.strftime("%Y-%m-%d"),
        "ceilings": [],
        "rows": {},
    }


def commit_of(folder: str) -> str:
    """The commit of a checkout, or "unknown" without git or history, also if only a folder around it has one."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True).stdout.strip()

    try:
        top = git("rev-parse", "--show-toplevel")
        is_checkout = bool(top) and Path(top).resolve() == Path(folder).resolve()
        return (git("describe", "--always", "--dirty") if is_checkout else "") or "unknown"
    except OSError:
        return "unknown"


def as_command(arguments: Sequence[str] | None = None) -> str:
    """The command line of this process, for the results."""
    return " ".join(["clearformer", *(sys.argv[1:] if arguments is None else arguments)])
