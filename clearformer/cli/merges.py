"""The command `clearformer merges`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def merges(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Words; each occurrence counts.", show_default="the commonest of --text"),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text file to learn the merges from; the WORDs are then only followed.",
            show_default="learn from the WORDs",
            rich_help_panel="Input",
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Number of merges.", rich_help_panel="Output")] = 10,
    json: Json = False,
) -> None:
    """Show how byte-pair encoding builds its vocabulary, merge by merge.

    Examples:
      clearformer merges low low lower lowest
      clearformer merges low lower lowest -n 3 --json
      clearformer merges --text book.txt -n 50 eat eats eaten ate     # learned from a book

    Prints a line for each merge: the most frequent pair of neighbouring symbols, its count, and the words after it.
    """
    from clearformer.verbs.merges import merges as learn

    result = learn(words or (), text, n)
    if json:
        print_json(result)
        return
    rows = [["start", *(" ".join(symbols) for symbols in result["start"])]]
    for i, merge in enumerate(result["merges"], start=1):
        label = f"{i}. {'+'.join(merge['pair'])} ×{merge['count']}"
        rows.append([label, *(" ".join(symbols) for symbols in merge["words"])])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
