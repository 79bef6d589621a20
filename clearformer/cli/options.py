"""Options that several verbs share, and how text comes in."""

import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Option("--model", "-m", help="A run folder or the name of a bundled model.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a setting: table.key=value. May be repeated.")]


def corpus_path(text: str) -> Path | tuple[Path, Path]:
    """One file, or two line-aligned ones joined by a comma."""
    parts = [Path(part) for part in text.split(",")]
    return (parts[0], parts[1]) if len(parts) == 2 else parts[0]


def columns(text: str) -> tuple[int, int] | tuple[str, str]:
    """ "0,1" or "en,de"."""
    left, _, right = text.partition(",")
    return (int(left), int(right)) if left.isdigit() and right.isdigit() else (left, right)


def incoming(arguments: list[str]) -> Iterator[list[str]]:
    """The texts to work on, in chunks: the arguments, or whatever lines stdin has ready, so that output streams."""
    if arguments:
        yield arguments
        return
    lines: queue.Queue[str | None] = queue.Queue(maxsize=4096)

    def read() -> None:
        for raw in sys.stdin.buffer:
            lines.put(raw.decode("utf-8", errors="replace").rstrip("\r\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        chunk = [line]
        while len(chunk) < 512 and not lines.empty():
            if (line := lines.get()) is None:
                yield chunk
                return
            chunk.append(line)
        yield chunk
