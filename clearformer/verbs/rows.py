"""Apply a command to every row of a file, in chunks, and write the results to another file or print them.

    job = Job("translate", ["translation"], run)               what is done with the texts of a chunk
    write_results(records, Path("out.csv"), job)               all columns of the input, and the new ones

Neither file is held in memory. The output appears when it is complete: an interruption leaves nothing behind.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.files.records import Record, Records, free_names
from clearformer.data.files.write import Layout, writing
from clearformer.errors import Interrupted
from clearformer.training.journal import console, rich_console
from clearformer.wording import agree, count


class Result(NamedTuple):
    """The values of the new columns, the lines that the command prints, and what --json prints."""

    values: Sequence[Any]
    lines: Sequence[str]
    json: dict[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """A command as a function of texts."""

    verb: str
    columns: Sequence[str]
    """The names of the new columns."""
    run: Callable[[Sequence[tuple[str, ...]], int], Sequence[Sequence[Result]]]
    """(texts of each row, index of the first row) -> results of each row: several for several translations."""


def results(records: Records, job: Job) -> Iterator[Result]:
    """Yield the results of all rows in order, to be printed."""
    with counting(job.verb, records.n_rows) as counted:
        for first, chunk in counted(records.chunks()):
            for some in job.run([record.texts for record in chunk], first):
                yield from some


def write_results(records: Records, out: Path, job: Job) -> int:
    """Write a file with the rows of the input and the new columns, and return the number of input rows.

    A new column gets another name if the input has a column of that name.
    """
    columns = free_names(job.columns, records.names)
    for old, new in zip(job.columns, columns):
        if old != new:
            console.print(f"{records.path} has a column `{old}`: the new column is `{new}`")
    layout = Layout(records.names, columns, records.has_header, records.separator)
    with counting(job.verb, records.n_rows, out) as counted, writing(out, layout) as writer:
        for first, chunk in counted(records.chunks()):
            for record, some in zip(chunk, job.run([record.texts for record in chunk], first)):
                for result in some:
                    writer.add(record.row, result.values, result.lines)
                    writer.n_rows += 1
        if writer.n_joined:
            console.print(
                f"line ends or tabs in {count(writer.n_joined, 'text')} {agree(writer.n_joined, 'is', 'are')} written "
                "as spaces; .csv, .json and .jsonl files keep them"
            )
    return counted.n_rows


class Counter:
    """Counts the rows of chunks that are done, and shows them in a progress bar."""

    def __init__(self, advance: Callable[[int], object]) -> None:
        self.advance, self.n_rows = advance, 0

    def __call__(self, parts: Iterable[list[Record]]) -> Iterator[tuple[int, list[Record]]]:
        """Yield each chunk with the index of its first row."""
        for chunk in parts:
            yield self.n_rows, chunk
            self.n_rows += len(chunk)
            self.advance(len(chunk))


@contextmanager
def counting(verb: str, n_rows: int | None, out: Path | None = None) -> Iterator[Counter]:
    """Show a progress bar on a terminal, and answer Ctrl-C by how far the command came.

    There is no bar if the results are printed to a terminal, or if they are printed while the input is still written.
    """
    is_shown = sys.stderr.isatty() and (out is not None or (n_rows is not None and not sys.stdout.isatty()))
    counter = Counter(lambda n: None)
    try:
        if is_shown:
            with progress_bar(verb, n_rows) as counter.advance:
                yield counter
        else:
            yield counter
    except KeyboardInterrupt:
        if out is None and n_rows is None:
            raise
        total = "" if n_rows is None else f" of {n_rows:,}"
        rows = agree(counter.n_rows if n_rows is None else n_rows, "row", "rows")
        written = "" if out is None else f"; {out} {'is unchanged' if out.exists() else 'was not written'}"
        print(f"interrupted after {counter.n_rows:,}{total} {rows}{written}", file=sys.stderr)
        raise Interrupted from None


@contextmanager
def progress_bar(verb: str, total: int | None) -> Iterator[Callable[[int], object]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    parts = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*parts, TimeRemainingColumn(), console=rich_console(), transient=True) as bar:
        task = bar.add_task(verb, total=total)
        yield lambda n: bar.advance(task, n)
