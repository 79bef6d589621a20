"""Options that several verbs share, and how text comes in."""

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO, Annotated

import typer

from clearformer.errors import ConfigError, DataError

Model = Annotated[
    str, typer.Option("--model", "-m", metavar="MODEL", help="A run folder or the name of a bundled model.")
]
Pairs = Annotated[
    str | None,
    typer.Option("--pairs", metavar="FILE[,FILE]", help="Pairs: a .tsv or .jsonl file, or two aligned files."),
]
Text = Annotated[
    str | None,
    typer.Option("--text", metavar="FILE[,FILE…]", help="Running text: .txt or .jsonl files, for a language model."),
]
Valid = Annotated[
    str | None,
    typer.Option("--valid", metavar="FILE[,FILE]", help="Data to validate on; else some of the training data."),
]
Test = Annotated[str | None, typer.Option("--test", metavar="FILE[,FILE]", help="Data to test on at the end.")]
ColumnPair = Annotated[str, typer.Option("--columns", metavar="A,B", help="Two numbers from 0, or names: en,de.")]
Labels = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE", help="Labelled texts, .tsv or .jsonl; labelled words, .conll or .jsonl."),
]
Images = Annotated[
    str | None,
    typer.Option("--images", metavar="FOLDER", help="Pictures, a folder a class; or an idx, .npz or .parquet file."),
]
TextColumns = Annotated[
    str | None,
    typer.Option(
        "--text-columns", metavar="A[,B]", help="Where the text is, or both texts of a pair: numbers from 0, or names."
    ),
]
LabelColumn = Annotated[str | None, typer.Option("--label-column", metavar="C", help="Where the label is.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="The run folder.  [default: runs/<data>-<model>-<time>]")
]
Set = Annotated[list[str], typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override a setting; repeatable.")]
Beam = Annotated[int | None, typer.Option("--beam", metavar="N", min=1, help="Branches kept; 1 is greedy search.")]
LengthPenalty = Annotated[
    float | None, typer.Option("--length-penalty", metavar="ALPHA", help="More of it favours longer translations.")
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def corpus(text: str | None) -> str | tuple[str, str] | None:
    """One file, or two line-aligned ones joined by a comma."""
    parts = text.split(",") if text is not None and not Path(text).exists() else [text]
    if len(parts) > 2:
        raise ConfigError(f"{text} names {len(parts)} files", "give one, or two that are aligned line by line: a,b")
    return (str(parts[0]), str(parts[1])) if len(parts) == 2 else text


def files(text: str | None) -> list[str] | None:
    """One file, or several joined by commas."""
    return None if text is None else [text] if Path(text).exists() else text.split(",")


def columns(text: str) -> tuple[int, int] | tuple[str, str]:
    """ "0,1" or "en,de"."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"--columns {text}: expected two columns", "for example --columns 0,1 or --columns en,de")
    left, right = parts
    return (int(left), int(right)) if left.isdecimal() and right.isdecimal() else (left, right)


def text_columns(text: str | None) -> int | str | tuple[int | str, int | str] | None:
    """ "0", "sentence", or two of them: "3,4"."""
    parts = [] if text is None else [one_column(part.strip()) for part in text.split(",")]
    if len(parts) > 2 or "" in parts:
        raise ConfigError(f"--text-columns {text}: expected one column, or two", "for example 0, sentence, or 3,4")
    return (parts[0], parts[1]) if len(parts) == 2 else parts[0] if parts else None


def label_column(text: str | None) -> int | str | None:
    return None if text is None else one_column(text)


def one_column(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def tell_broken(broken: list[DataError]) -> bool:
    """Name files that could not be read, where others could, as `cat` does; whether there are any."""
    for error in broken:
        print(f"error: {error}", file=sys.stderr)
    return bool(broken)


def incoming(arguments: list[str]) -> Iterator[list[str]]:
    """The texts to work on, in chunks: the arguments, or whatever lines stdin has ready, so that output streams.

    When a line cannot be decoded, those before it are handed out first.
    """
    from clearformer.data.sources import decode_line

    if arguments:
        yield arguments
        return
    if sys.stdin is None:
        raise ConfigError("there is nothing to read: stdin is closed", "give sentences as arguments")
    if sys.stdin.isatty():
        print("type a sentence a line; Ctrl-D ends", file=sys.stderr)
    numbers = count(1)
    for lines in ready_lines(sys.stdin.buffer):
        chunk: list[str] = []
        try:
            chunk.extend(decode_line(line, "stdin", next(numbers)) for line in lines)
        except DataError:
            yield chunk
            raise
        yield chunk


def ready_lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """The lines of a stream, as many at a time as one read gives."""
    rest = b""
    while data := stream.read1(1 << 15):  # type: ignore[attr-defined]
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]
