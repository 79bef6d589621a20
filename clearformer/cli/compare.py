"""clearformer compare"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json


@app.command()
def compare(
    settings: Annotated[Path, typer.Argument(metavar="COMPARISON", help="Contenders and budget, a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder of the runs.  [default: runs/<comparison>]")
    ] = None,
    at_once: Annotated[
        int, typer.Option(metavar="N", min=1, help="Trainings that share the device; they slow each other down.")
    ] = 1,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare several recipes with the same budget.

    The results are a table, a figure and a web page. Given again, the same command resumes an interrupted comparison.

    \b
    clearformer compare recipes/compare-translation.toml
    clearformer compare mine.toml --out runs/mine --json
    clearformer compare recipes/compare-multi30k.toml --at-once 3
    """
    from json import dumps

    from clearformer.comparison.page import cells
    from clearformer.training.journal import console
    from clearformer.verbs.compare import compare as compare_recipes

    results = compare_recipes(settings, out, device, console.print, at_once)
    if json:
        print(dumps(results, ensure_ascii=False))
        return
    rows = cells(results)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *values in rows:
        print("  ".join([f"{name:<{widths[0]}}", *(f"{value:>{width}}" for value, width in zip(values, widths[1:]))]))
    print(results["page"])
