"""Checkpoints of a sharded run: each rank writes its rows of every tensor, in a thread beside training.

    training      copies the rows of this rank to the memory of the host, and goes on
    the thread    writes them to a part (parts.py), and reports its checksum to the first rank
    first rank    when all parts are there: renames the index, which is the commit, and removes the parts of before

Nothing is gathered: a rank holds its own rows only. A kill at any moment leaves the index and the parts that it lists.
The weights for inference are written in the same way, and the first rank then merges their parts into one ordinary
file, a piece at a time. Ranks find each other through the store of `Meeting`, since a collective of a thread could come
between those of training.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from torch import Tensor

from clearformer.checkpoint import RunFolder, part_names, remove, write_json
from clearformer.checksums import add, seal
from clearformer.disk import atomically
from clearformer.errors import ClearformerError, MachineError
from clearformer.small_files import read_json
from clearformer.training.distributed import World
from clearformer.training.meeting import POLLS, is_lost, lost
from clearformer.training.parts import Piece, merge, pieces_of, write_part


class Job(NamedTuple):
    """A file to write: its number, and the pieces of this rank, which are copied when `event` has happened."""

    target: Path
    number: int
    pieces: Mapping[str, Piece]
    shapes: Mapping[str, list[int]]
    facts: Mapping[str, Any]
    event: Any


class Saver:
    """Saves the checkpoints of a sharded run. All ranks build one, and then save the same files in the same order."""

    def __init__(self, run: RunFolder, world: World) -> None:
        assert world.meeting is not None
        self.run, self.world, self.meeting = run, world, world.meeting
        # The name separates the keys in the store from those of another saver, whose numbers may be the same.
        self.number, self.name = world.agree((self.last_number() if world.is_first else 0, uuid4().hex))
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.done: dict[Path, threading.Event] = {}
        self.copies: dict[tuple[Path, str], Tensor] = {}  # in the memory of the host, used again by the next save
        self.stream: torch.cuda.Stream | None = None  # of the copies
        self.event: torch.cuda.Event | None = None  # after the last of them
        self.failure: ClearformerError | None = None
        self.is_watching = False
        self.thread: threading.Thread | None = None

    def last_number(self) -> int:
        """Return the number of the checkpoint that the folder has, or 0. Parts of another number are never replaced."""
        if not self.run.index.exists():
            return 0
        part_names(self.run.index)
        number = read_json(self.run.index).get("save")
        return number if isinstance(number, int) and 0 <= number < 2**53 else 0

    # --- the thread of training

    def save(self, target: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Begin to save a checkpoint, or the weights for inference. Waits if the same file is still being written."""
        if target in self.done:
            self.wait(target)
        self.number += 1
        parts = pieces_of(tensors, self.world.is_first)
        pieces = {name: Piece(self.copy(target, name, *piece), piece.start) for name, piece in parts.items()}
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        self.event = None if self.stream is None else self.stream.record_event()
        self.done[target] = threading.Event()
        self.jobs.put(Job(target, self.number, pieces, shapes, facts, self.event))
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()

    def copy(self, target: Path, name: str, rows: Tensor, start: int | None) -> Tensor:
        """Copy a tensor to the host. Weights on an accelerator are copied beside training; see `settle`."""
        copy = self.copies.get((target, name))
        if copy is None or copy.shape != rows.shape:
            copy = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=rows.is_cuda)
            self.copies[target, name] = copy
        if not rows.is_cuda or start is None:  # statistics change in a forward pass already
            return copy.copy_(rows)
        self.stream = self.stream or torch.cuda.Stream(rows.device)
        self.stream.wait_stream(torch.cuda.current_stream(rows.device))
        with torch.cuda.stream(self.stream):
            rows.record_stream(self.stream)
            return copy.copy_(rows, non_blocking=True)

    def settle(self) -> None:
        """Before weights change: let the device finish the copies of them. The host does not wait."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)
            self.event = None

    def wait(self, target: Path | None = None) -> None:
        """Wait until everything is saved, or one file is. Raise what has gone wrong, on this rank or another."""
        for event in [self.done[target]] if target is not None else [*self.done.values()]:
            while not event.wait(POLLS):
                if self.is_watching and time.monotonic() - self.meeting.answered > self.meeting.seconds:
                    raise lost(self.meeting.seconds)
        self.check()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End the thread after its work, unless this takes longer: the process may end before, as by an error."""
        if self.thread is not None:
            self.jobs.put(None)
            self.thread.join(1)
            self.thread = None

    # --- the thread that writes

    def work(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                if self.failure is None:
                    self.write(job)
            except Exception as error:  # reported by the thread of training
                self.failure = explained(error, job.target, self.meeting.seconds)
            finally:
                self.done[job.target].set()

    def write(self, job: Job) -> None:
        """Write the part of this rank, and return when the first rank has committed the whole."""
        if job.event is not None:
            job.event.synchronize()
        path, key = self.part(job, self.world.rank), self.part_key(job, self.world.rank)
        errors = self.whole_key(job) if self.world.is_first else key  # what other ranks wait for
        with self.telling_errors(errors, path), atomically(path, is_noted=False) as draft:
            entry = write_part(draft, job.pieces)
        self.tell(key, entry)
        if self.world.is_first:
            self.commit(job)
        else:
            require_success(self.hear(0, self.whole_key(job)))

    def commit(self, job: Job) -> None:
        """On the first rank: wait for all parts, then write the index, or the merged file, and tell the other ranks."""
        paths, key = [self.part(job, rank) for rank in range(self.world.size)], self.whole_key(job)
        with self.telling_errors(key, job.target):
            try:
                entries = {path.name: self.hear(rank, self.part_key(job, rank)) for rank, path in enumerate(paths)}
                for entry in entries.values():
                    require_success(entry)
                if job.target == self.run.last:
                    self.commit_index(job, entries)
                else:
                    with atomically(job.target) as draft:
                        merge(paths, draft, job.facts)
            finally:
                if job.target == self.run.last:
                    self.run.discard_unlisted()
                else:
                    for path in paths:
                        path.unlink(missing_ok=True)
        self.tell(key, {})

    def commit_index(self, job: Job, entries: dict[str, dict[str, Any]]) -> None:
        """Name the parts, in a file that is complete or absent. Then the checkpoint before is no longer needed."""
        add(self.run.path, entries)
        write_json(self.run.index, {"save": job.number, "parts": [*entries], "shapes": job.shapes, "facts": job.facts})
        remove(self.run.path, [self.run.last.name])
        seal(self.run.path)  # with the log and the prepared data

    def part(self, job: Job, rank: int) -> Path:
        """Return the path of a part. Parts to be merged are temporary files, which `RunFolder.sweep` knows."""
        name = f"{job.target.stem}.save-{job.number}.rank-{rank}-of-{self.world.size}.safetensors"
        return job.target.with_name(name if job.target == self.run.last else f".{name}.{job.number}")

    def part_key(self, job: Job, rank: int) -> str:
        return f"saves/{self.name}/{job.number}/{rank}"

    def whole_key(self, job: Job) -> str:
        return f"saves/{self.name}/{job.number}/whole"

    @contextmanager
    def telling_errors(self, key: str, path: Path) -> Iterator[None]:
        """Tell an error to the ranks that wait for this key, and raise it."""
        try:
            yield
        except Exception as error:
            clear = explained(error, path, self.meeting.seconds)
            self.tell(key, {"message": clear.message, "hint": clear.hint})
            raise

    def tell(self, key: str, value: Mapping[str, Any]) -> None:
        self.meeting.store.set(key, json.dumps(value))

    def hear(self, rank: int, key: str) -> dict[str, Any]:
        """Wait for what a rank tells."""
        self.meeting.answered, self.is_watching = time.monotonic(), True
        try:
            self.meeting.watch({rank: key})
        finally:
            self.is_watching = False
        value: dict[str, Any] = json.loads(self.meeting.store.get(key))
        return value


def explained(error: Exception, path: Path, seconds: float) -> ClearformerError:
    if isinstance(error, ClearformerError):
        return error
    if isinstance(error, RuntimeError) and is_lost(error):  # the process that holds the store has ended
        return lost(seconds)
    return MachineError(f"{path} cannot be written: {error}", "the last checkpoint is intact")


def require_success(answer: Mapping[str, Any]) -> None:
    if "message" in answer:
        raise MachineError(answer["message"], answer["hint"])
