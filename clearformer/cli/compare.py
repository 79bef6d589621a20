"""The command `clearformer compare`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json, RunDevice


@app.command(cls=Command)
def compare(
    settings: Annotated[
        Path, typer.Argument(metavar="COMPARISON", help="TOML file that lists the recipes, the budget and the seeds.")
    ],
    at_once: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of runs to train at the same time; they compete for the device.",
            rich_help_panel="Run",
        ),
    ] = 1,
    device: RunDevice = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the runs and the results.",
            show_default="runs/<comparison>",
            rich_help_panel="Output",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train several recipes with the same budget and compare them.

    Examples:
      clearformer compare recipes/compare-translation.toml             # takes minutes on two cores
      clearformer compare mine.toml --out runs/mine --json
      clearformer compare recipes/compare-multi30k.toml --at-once 3    # needs a GPU

    Prints a table of results, and writes results.json, a figure and a web page. To resume an interrupted comparison,
    repeat the command. docs/recipes.md describes the file format.
    """
    from clearformer.cli.columns import in_columns
    from clearformer.comparison.page import cells
    from clearformer.training.journal import console
    from clearformer.verbs.compare import compare as compare_recipes

    results = compare_recipes(settings, out, device, console.print, at_once)
    if json:
        print_json(results)
        return
    print(in_columns(cells(results)))
    print(results["page"])
