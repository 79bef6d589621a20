"""Inputs and outputs of the commands that compute something for each text: arguments, stdin, --input; stdout, --out.

records = open_inputs("translate", text, input, column, out)     all ways in, as rows
deliver(records, out, json, "translations", job)                 all ways out
"""

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.json_object import print_json
from clearformer.cli.options import read_inputs
from clearformer.errors import ConfigError

if TYPE_CHECKING:
    from clearformer.data.files.records import Records
    from clearformer.verbs.rows import Job

Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="File to read: plain text, one text per line, or a data table (.csv, .jsonl, .xlsx …).",
        show_default="the arguments, or stdin",
        rich_help_panel="Input",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="NAME",
        help="Column of --input that contains the texts: a name, or a number from 0.",
        show_default="`text`, `source` …, or the only one with texts",
        rich_help_panel="Input",
    ),
]
Results = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="File to write, with all columns of the input: .csv, .tsv, .jsonl or .json; or .txt, results only.",
        show_default="print the results",
        rich_help_panel="Output",
    ),
]

NO_TEXTS = {".bmp", ".flac", ".gif", ".jpeg", ".jpg", ".mp3", ".npz", ".ogg", ".png", ".tiff", ".wav", ".webp"}
TEXTS = {".csv", ".gz", ".json", ".jsonl", ".parquet", ".tmx", ".tsv", ".txt", ".xliff", ".xlsx", ".zst"}


def open_inputs(
    verb: str,
    arguments: Sequence[str] | None,
    file: Path | None,
    column: str | None,
    out: Path | None,
    name: str = "text",
    is_pair: bool = False,
    is_image: bool = False,
    types: Mapping[str, Any] | None = None,
    most: int = 1,
) -> "Records":
    """Return the input as rows: arguments or stdin, with one column `name`, or the rows of --input.

    `types` are the file types that can be written; `most` is the number of columns that --column may give.
    """
    from clearformer.data.files.records import FILES, INPUTS, open_records
    from clearformer.data.files.write import WRITERS, require_writable

    if out is not None:
        require_writable(out, WRITERS if types is None else types, file)
    if file is None:
        if column is not None:
            raise ConfigError("--column needs --input", "give the file with --input FILE")
        if not is_image:
            refuse_files(verb, arguments or ())
        return given_texts(list(arguments or ()), name)
    if arguments:
        raise ConfigError("texts as arguments and --input cannot be combined", "give one of them")
    records = open_records(file, column, is_pair, FILES if is_image else INPUTS, name)
    if column is not None and records.n_columns > most:
        raise ConfigError(f"--column {column}: {verb} reads one column", "give only one name")
    if records.message:
        print(records.message, file=sys.stderr)
    records.scan()
    if records.n_rows == 0:
        print(f"{file} is empty", file=sys.stderr)
    return records


def given_texts(texts: list[str], name: str) -> "Records":
    """Return the arguments, or the lines of stdin, as rows."""
    from clearformer.data.files.records import Record, Records

    class Given(Records):
        def read(self) -> Generator[Record]:
            return (record for chunk in self.chunks() for record in chunk)

        def chunks(self) -> Generator[list[Record]]:
            for chunk in read_inputs(texts):
                yield [Record({name: text}, (text,)) for text in chunk]

    records = Given(Path("the input"))
    records.names = [name]
    return records


def refuse_files(verb: str, arguments: Sequence[str], has_input: bool = True) -> None:
    """Refuse an argument that is the name of a file with an ending; a single word, such as `notes`, may be a text."""
    for text in arguments:
        ending = os.path.splitext(text)[1].lower()
        if os.path.isfile(text):
            message = f"`{text}` is a file, and {verb} takes texts"
            hint = f"to {verb} its lines: --input {text}" if has_input else "give the sentence itself"
            if ending in NO_TEXTS and has_input:
                raise ConfigError(message, "give texts, or a file of texts with --input FILE, or another --model")
            if ending:
                raise ConfigError(message, hint)
            print(f"note: {message}; {hint}", file=sys.stderr)
        elif ending in TEXTS and " " not in text:
            print(f"note: there is no file `{text}`, so {verb} takes it as a text", file=sys.stderr)


def deliver(records: "Records", out: Path | None, json: bool, key: str, job: "Job") -> None:
    """Write the results to --out, and print its name; or print the results: lines, or one JSON object."""
    from clearformer.verbs.rows import results, write_results

    if out is not None:
        n_rows = write_results(records, out, job)
        print_json({"out": str(out), "rows": n_rows}) if json else print(out)
    elif json:
        print_json({key: [result.json for result in results(records, job) if result.json]})
    else:
        for result in results(records, job):
            for line in result.lines:
                print(line, flush=True)
