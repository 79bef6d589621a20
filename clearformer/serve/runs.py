"""Training runs by HTTP, while they are written.

    GET /api/runs                 every run folder, with its last metrics
    GET /api/samples?run=NAME     the samples of the model's output that its validations have printed
    GET /api/histograms?run=NAME  histograms of weights, gradients and activations by layer and step
    GET /api/metrics?run=NAME     all records of metrics.jsonl, of one or several runs
    … Accept: text/event-stream   the same, followed by every new record as soon as it is written

    records   {"run": NAME, "first": 12, "records": […]}       id: the number of lines read, one for each run
    restart   {"run": NAME}                                    a resumed run has removed lines: records begin again
    problem   {"run": NAME, "message": …}                      the folder is removed, or a line is no record
    ready     {}                                               all records so far have been sent
    [DONE]                                                     the end, as of every stream (streams.py)

A stream looks at the size and time of each file twice per second, and reads only what has been added: watching costs a
training next to nothing. A stream that is interrupted continues after the lines in its Last-Event-ID. A run folder may
be incomplete, removed or of another version at any time: a sentence in the answer, never an error of the request.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from clearformer.checkpoint import RunFolder
from clearformer.errors import ClearformerError, ConfigError, DataError, suggest
from clearformer.lens.histograms import histograms_of_run
from clearformer.loading.folder import read_recipe
from clearformer.serve.answers import JSONText, error_of, event
from clearformer.serve.opener import Stamp, stamp_of
from clearformer.serve.store import architecture_of, changed_at, problem_of
from clearformer.serve.streams import streamed

LIVE_SECONDS = 120  # since the last record of a run that has not ended
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
TAIL_BYTES = 65536
MOST_RUNS = 16
router = APIRouter(prefix="/api")


@dataclass
class Tail:
    """The records of a metrics.jsonl that grows. `line` is the number of lines read so far."""

    name: str
    path: Path
    line: int = 0
    skip: int = 0
    """Lines that the reader of a resumed stream has already."""
    offset: int = 0
    inode: int = 0
    message: str = ""
    stamp: Stamp | None = None

    def read_new(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events since the last call. A file that has not changed is not opened."""
        stamp = stamp_of(self.path)
        if stamp is not None and stamp == self.stamp:
            return []
        self.stamp = stamp  # before reading: a line that is written meanwhile is found next time
        return self.read()

    def read(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events since the last call."""
        try:
            with self.path.open("rb") as file:
                stat = file.seek(0, 2), self.path.stat().st_ino
                events = self.restart(*stat)
                file.seek(self.offset)
                text = file.read()
        except OSError as error:
            is_removed = not self.path.parent.exists()
            if isinstance(error, FileNotFoundError):
                return self.problem("the run folder has been removed" if is_removed else "there are no metrics yet")
            return self.problem(problem_of(error, self.path.parent))
        *lines, rest = text.split(b"\n")
        if not lines:
            return events + (self.problem("") if not self.offset or events else [])
        self.offset += len(text) - len(rest)
        first, self.line = self.line, self.line + len(lines)
        if self.skip:
            if self.skip > len(lines):  # fewer lines than the reader has seen: the run was started again
                events.append(("restart", {"run": self.name}))
                self.skip = 0
            first, lines, self.skip = first + self.skip, lines[self.skip :], 0
        records, bad = parse(lines, first)
        if records:
            events.append(("records", {"run": self.name, "first": first, "records": records}))
        return events + (self.problem(bad) if bad or not self.message.startswith("line") else [])

    def restart(self, size: int, inode: int) -> list[tuple[str, dict[str, Any]]]:
        """Begin again if the file has been replaced, as a resumed run does."""
        is_same = self.inode in (0, inode) and size >= self.offset
        self.inode = inode
        if is_same:
            return []
        self.line = self.offset = self.skip = 0
        return [("restart", {"run": self.name})]

    def problem(self, message: str) -> list[tuple[str, dict[str, Any]]]:
        if message == self.message:
            return []
        self.message = message
        return [("problem", {"run": self.name, "message": message})]


def parse(lines: Sequence[bytes], first: int) -> tuple[list[dict[str, Any]], str]:
    """Return the records of complete lines, and a sentence about the first line that is none."""
    records: list[dict[str, Any]] = []
    bad = ""
    for number, line in enumerate(lines, first + 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                raise ValueError
            records.append(record)
        except ValueError:
            bad = bad or f"line {number} of metrics.jsonl is not a record of training"
    return records, bad


def describe_run(name: str, folder: Path) -> dict[str, Any]:
    """Return what a list of runs shows: the recipe in short, the last records, and whether the run is going on."""
    run, changed = RunFolder(folder), changed_at(folder)
    facts: dict[str, Any] = {"name": name, "changed": changed, "task": None, "architecture": None, "steps": None}
    facts |= {"step": None, "train": None, "valid": None, "is_live": False, "problem": None}
    facts |= describe_recipe(folder, stamp_of(run.recipe))
    try:
        with run.metrics.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - TAIL_BYTES, 0))
            lines = file.read().split(b"\n")[1 if size > TAIL_BYTES else 0 : -1]
    except FileNotFoundError:
        facts["problem"] = facts["problem"] or "there are no metrics yet"
        return facts
    except OSError as error:
        facts["problem"] = facts["problem"] or problem_of(error, folder)
        return facts
    records, _ = parse(lines, 0)
    for record in records:
        if record.get("kind") in ("train", "valid"):
            facts["step"], facts[record["kind"]] = record["step"], record
    is_finished = run.report.exists() and run.report.stat().st_mtime >= changed
    facts["is_live"] = not is_finished and time.time() - changed < LIVE_SECONDS
    return facts


@lru_cache(maxsize=1000)
def describe_recipe(folder: Path, stamp: Stamp | None) -> dict[str, Any]:
    """Describe the recipe of a run. The list of runs is asked for every few seconds; `stamp` is that of the file."""
    try:
        recipe = read_recipe(folder)
    except (ClearformerError, OSError, ValueError) as error:
        return {"problem": problem_of(error, folder)}
    short = architecture_of(recipe).partition(",")[0]
    return {"task": recipe.objective.kind, "steps": recipe.train.steps, "architecture": short}


@router.get("/runs")
def runs(request: Request) -> Response:
    store = request.app.state.store
    rows = [describe_run(name, folder) for name, folder in store.run_folders().items()]
    return JSONText({"folder": None if store.runs is None else str(store.runs), "runs": rows})


@router.get("/samples")
def samples(request: Request, run: str) -> Response:
    try:
        lines = RunFolder(folder_of(request, run)).samples.read_bytes().split(b"\n")[:-1]
    except OSError:  # a task without samples, or a run before its first validation
        lines = []
    return JSONText({"run": run, "samples": parse(lines, 0)[0]})


@router.get("/histograms")
def histograms(request: Request, run: str, layer: str | None = None) -> Response:
    folder = folder_of(request, run)
    if not RunFolder(folder).histograms.exists():  # the setting is off, or there has been no validation yet
        return JSONText({"run": run, "steps": [], "layers": []})
    try:
        return JSONText({"run": run, **histograms_of_run(folder, layer)})
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the histograms of {run} cannot be read: {error}", "train the run again") from None


def folder_of(request: Request, run: str) -> Path:
    folders: dict[str, Path] = request.app.state.store.run_folders()
    if run not in folders:
        raise ConfigError(f"there is no run called `{run}`", suggest(run, folders))
    return folders[run]


@router.get("/metrics")
async def metrics(
    request: Request,
    run: Annotated[list[str], Query(max_length=MOST_RUNS)],
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    folders = request.app.state.store.run_folders()
    unknown = [name for name in run if name not in folders]
    if unknown and not folders:
        raise ConfigError("this server has no runs", "start it with --runs FOLDER")
    if unknown and "text/event-stream" not in accept:
        raise ConfigError(f"there is no run called `{unknown[0]}`", suggest(unknown[0], folders))
    root: Path = request.app.state.store.runs
    # A run that is not there is followed too: it has been removed, or it comes back.
    tails = [Tail(name, RunFolder(folders.get(name, root / ".removed")).metrics) for name in run]
    if "text/event-stream" in accept:
        for tail, seen in zip(tails, last_event_id.split(",")):
            tail.skip = int(seen) if seen.strip().isdecimal() else 0
        return streamed(request, follow(request, tails), lambda error: problems(tails, error))
    answers = {tail.name: [data for name, data in tail.read() if name == "records"] for tail in tails}
    rows = [{"run": name, "records": data[0]["records"] if data else []} for name, data in answers.items()]
    return JSONText({"runs": [{**row, "problem": tail.message or None} for row, tail in zip(rows, tails)]})


def problems(tails: Sequence[Tail], error: Exception) -> str:
    """Return the events for an error that ends the stream."""
    message = error_of(error)["error"]["message"]
    return "".join(event("problem", {"run": tail.name, "message": message}) for tail in tails)


async def follow(request: Request, tails: Sequence[Tail]) -> AsyncIterator[str]:
    """Yield the records of all runs, then new ones as they are written, until the server stops."""
    quiet, is_ready = 0.0, False
    while not request.app.state.is_closing:
        for tail in tails:
            for name, data in await asyncio.to_thread(tail.read_new):
                quiet = 0.0
                yield event(name, data, id=",".join(str(one.line or one.skip) for one in tails))
        if not is_ready:
            is_ready = True
            yield event("ready", {})
        if quiet >= HEARTBEAT_SECONDS:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(POLL_SECONDS)
        quiet += POLL_SECONDS
