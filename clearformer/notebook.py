"""What a notebook shows: facts as a table, and progress that is updated in place.

Both are plain HTML, and need nothing but IPython, which every notebook has. Outside of notebooks nothing is shown.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from html import escape
from typing import Any, ClassVar, TypeVar

Batch = TypeVar("Batch", bound=Sized)
PATIENCE = 1.0  # seconds of work before progress is shown
INTERVAL = 0.2  # seconds between two updates


def is_notebook() -> bool:
    """Whether this code runs in a notebook, whose shell has a kernel. IPython is not imported to find out."""
    python = sys.modules.get("IPython")
    return getattr(python and python.get_ipython(), "kernel", None) is not None


def html_table(title: str, rows: Mapping[str, str]) -> str:
    """Return a title and a table with two columns as HTML. All text is escaped."""
    style = "text-align: left; vertical-align: top"
    body = "".join(
        f'<tr><th style="{style}">{escape(name)}</th><td style="{style}">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption style='text-align: left'><b>{escape(title)}</b></caption><tbody>{body}</tbody></table>"


class NotebookBar:
    """A progress bar in the output of a cell, with the methods of rich.progress.Progress that `Journal` calls."""

    is_running: ClassVar[bool] = False
    """Whether a bar is shown now."""

    def __init__(self, title: str) -> None:
        self.title, self.note, self.completed, self.first = title, "", 0, 0
        self.total: int | None = None
        self.display: Any = None
        self.since = self.shown = time.monotonic()

    def add_task(self, title: str, total: int | None = None, completed: int = 0, note: str = "") -> int:
        self.title, self.total, self.completed, self.first, self.note = title, total, completed, completed, note
        return 0

    def start(self) -> None:
        from IPython.display import display

        NotebookBar.is_running = True
        self.display = display(self, display_id=True)

    def update(
        self, task: int = 0, completed: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        self.completed = self.completed if completed is None else completed
        self.total = self.total if total is None else total
        self.note = self.note if note is None else note
        if time.monotonic() - self.shown >= INTERVAL:
            self.refresh()

    def refresh(self) -> None:
        self.shown = time.monotonic()
        if self.display is not None:
            self.display.update(self)

    def stop(self) -> None:
        if self.display is not None:
            NotebookBar.is_running = False
            self.refresh()

    def __repr__(self) -> str:
        seconds = time.monotonic() - self.since
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self.title} {self.completed:,}{of}", clock(seconds)]
        n_done = self.completed - self.first
        if self.total is not None and n_done > 0 and self.completed < self.total:
            parts.append(f"{clock(seconds * (self.total - self.completed) / n_done)} left")
        return ", ".join(filter(None, [*parts, self.note]))

    def _repr_html_(self) -> str:
        extent = "" if self.total is None else f' value="{self.completed}" max="{max(1, self.total)}"'
        return f"<progress{extent}></progress> {escape(repr(self))}"


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, 1:05, or with hours, 2:01:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tracked(batches: Iterable[Batch], total: int) -> Iterator[Batch]:
    """Yield batches of inputs. In a notebook, show the progress of work that takes longer than a second.

    Within training, whose bar is shown already, nothing is shown.
    """
    if not is_notebook() or NotebookBar.is_running:
        yield from batches
        return
    bar, done = NotebookBar("inputs"), 0
    bar.add_task(bar.title, total)
    try:
        for batch in batches:
            yield batch
            done += len(batch)
            if bar.display is None and time.monotonic() - bar.since > PATIENCE and done < total:
                bar.start()
            bar.update(completed=done)
    finally:
        bar.stop()
