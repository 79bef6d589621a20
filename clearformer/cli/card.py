"""The command `clearformer card`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import MODEL_HELP, Command, Json


@app.command(cls=Command)
def card(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    title: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Name of the model.", show_default="the name of the folder", rich_help_panel="Content"
        ),
    ] = None,
    license: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Licence, such as apache-2.0.", show_default="not stated", rich_help_panel="Content"
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE[,CODE]",
            help="Languages, such as en,fr.",
            show_default="not stated",
            rich_help_panel="Content",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Markdown file to write.",
            show_default="README.md in the folder",
            rich_help_panel="Output",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file.", rich_help_panel="Output")
    ] = False,
    json: Json = False,
) -> None:
    """Write a model card: what the model is, its scores, data and limits.

    Examples:
      clearformer card runs/mine                                  # writes runs/mine/README.md
      clearformer card runs/mine --license apache-2.0 --language en,fr
      clearformer card runs/mine --out card.md --overwrite

    The card is a README.md with the header that the Hugging Face hub reads. Sizes, scores and settings come from the
    run folder. Questions that only you can answer are marked in italics.
    """
    from clearformer.verbs.card import card as write_card

    path = write_card(model, out, title, license, language, overwrite)
    print_json({"card": str(path)}) if json else print(path)
