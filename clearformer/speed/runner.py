"""Run the rows: our side and its peers take turns, each in a separate process, and a failure ends one row only.

turn 1: here, peer, peer     turn 2: here, peer, peer     …     median and range over all turns
ratio                        how many times faster we are: here / peer for rates, peer / here for seconds
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from clearformer.speed.context import WORKER, Context, environment, summary
from clearformer.speed.rows import TOKENS, Engine, Row
from clearformer.wording import count

Say = Callable[[str], None]
Results = dict[str, Any]
LIMITS = {True: 240, False: 900}  # seconds of one process, with --quick and without


class MeasurementError(Exception):
    """A measurement that failed or took too long. The row reports it, and the next row begins."""


def measure_row(row: Row, base: Context, repeats: int, say: Say) -> Results:
    """Measure one row, and return its entry in the results."""
    begun = time.monotonic()
    entry: Results = {"work": row.work, "unit": row.unit, "device": base.device, "engines": {}}
    reasons = {engine.name: why_not(engine, base) for engine in row.peers}
    for engine in row.peers:
        if reasons[engine.name]:
            entry["engines"][engine.name] = {"title": engine.title, "skipped": reasons[engine.name]}
            say(f"{row.name}: {engine.title} is skipped: {reasons[engine.name]}")
    outputs: dict[str, dict[int, list[Results]]] = {}
    for turn in range(repeats):
        for engine in row.engines:
            is_out = reasons.get(engine.name) or "error" in entry["engines"].get(engine.name, {})
            if is_out or "error" in entry:
                continue
            try:
                for threads in thread_counts(row, base.threads):
                    context = replace(base, row=row.name, turn=turn, threads=threads)
                    result = run_job(engine, context, limits_threads=row.device == "cpu")
                    outputs.setdefault(engine.name, {}).setdefault(threads, []).append(result)
                    threads_used = f" with {count(threads, 'thread')}" if row.by_threads else ""
                    say(f"{row.name}: {engine.title} {shown(median(result['values']), row.unit)}{threads_used}")
            except MeasurementError as error:
                say(f"{row.name}: {engine.title} failed: {error}")
                entry["engines"][engine.name] = {"title": engine.title, "error": str(error)}
                if engine is row.here:
                    entry["error"] = str(error)
    for engine in row.engines:
        if engine.name in outputs and "error" not in entry["engines"].get(engine.name, {}):
            entry["engines"][engine.name] = collected(engine, outputs[engine.name], row)
    compare(entry, {name: by[max(by)][-1] for name, by in outputs.items()})
    entry["seconds"] = round(time.monotonic() - begun, 1)
    return entry


def why_not(engine: Engine, context: Context) -> str | None:
    """Why a peer cannot run here, or None if it can."""
    if missing := [package for package in engine.packages if installed(package) is None]:
        return f"{' and '.join(missing)} not installed"
    if engine.needs_checkout and context.nanogpt is None:
        return "give its checkout with --nanogpt"
    return "left out by --quick" if engine.is_slow and context.is_quick else None


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def thread_counts(row: Row, threads: int) -> list[int]:
    return sorted({1, threads}) if row.by_threads else [threads]


def run_job(engine: Engine, context: Context, limits_threads: bool = False) -> Results:
    """Run one engine in a process group, which ends with it: after its time limit, by Ctrl-C, or when it is done."""
    job = json.dumps(
        {"call": engine.call, "context": asdict(context), "options": dict(engine.options), "parent": os.getpid()}
    )
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    settings = environment(context.threads) if limits_threads else dict(os.environ)
    limit = LIMITS[context.is_quick]
    with subprocess.Popen([*WORKER, job], env=settings, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"it took more than {limit} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = [line for line in err.splitlines() if line.strip()]
        raise MeasurementError(lines[-1][:300] if lines else f"exit code {process.returncode}")
    result: Results = json.loads(out.splitlines()[-1])
    return result


def collected(engine: Engine, by_threads: Mapping[int, Sequence[Results]], row: Row) -> Results:
    """Summarise all turns of an engine; with several numbers of threads, the better one counts."""
    summaries = {n: summary([v for turn in turns for v in turn["values"]]) for n, turns in by_threads.items()}
    best = (max if row.unit == TOKENS else min)(summaries, key=lambda n: summaries[n]["median"])
    last = by_threads[best][-1]
    more = {name: value for name, value in last.items() if name not in ("values", "tokens", "losses")}
    if len(summaries) > 1:
        more |= {"threads": best, "by_threads": {str(n): one["median"] for n, one in summaries.items()}}
    return {"title": engine.title, **summaries[best], **more}


def compare(entry: Results, outputs: Mapping[str, Results]) -> None:
    """Add the ratio to each peer, the fraction of equal output tokens, and the loss curves, where there are any."""
    engines, here = entry["engines"], outputs.get("here")
    if here is None or "median" not in engines.get("here", {}):
        return
    entry["ratios"] = {}
    for name, result in engines.items():
        if name == "here" or "median" not in result:
            continue
        pair = engines["here"]["median"], result["median"]
        entry["ratios"][name] = round(pair[0] / pair[1] if entry["unit"] == TOKENS else pair[1] / pair[0], 3)
        other = outputs[name]
        if here.get("tokens") and other.get("tokens"):
            result["same_tokens"] = agreement(here["tokens"], other["tokens"])
        if here.get("losses") and other.get("losses"):
            entry["losses"] = curves(here["losses"], name, other["losses"])


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """The fraction of equal tokens. In bfloat16, close choices may differ, and all later tokens with them."""
    pairs = [(a, b) for row, other in zip(ours, theirs) for a, b in zip(row, other)]
    return round(sum(a == b for a, b in pairs) / max(1, len(pairs)), 3)


def curves(ours: list[list[float]], name: str, theirs: list[list[float]]) -> Results:
    """Both loss curves at our log steps: our values are means since the previous one, so the peer's are, too."""
    by_step = {int(step): loss for step, loss in theirs}
    result: Results = {"step": [], "here": [], name: []}
    before = 0
    for step, loss in ours:
        since = [by_step[k] for k in range(before + 1, int(step) + 1) if k in by_step]
        if len(since) == step - before:
            result["step"].append(int(step))
            result["here"].append(loss)
            result[name].append(round(sum(since) / len(since), 4))
        before = int(step)
    return result


def shown(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if unit == TOKENS else f"{value:.2f} {unit}"
