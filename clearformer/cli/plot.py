"""clearformer plot"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command()
def plot(
    name: Annotated[
        str,
        typer.Argument(metavar="FIGURE", help="optimizers, gradients, positions, schedules, complexity or level-sets."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file.  [default: FIGURE.png]")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of whatever is drawn at random.")] = 0,
    json: Json = False,
) -> None:
    """Draw a claim of the course notes, computed here and now.

    --json prints the numbers that are drawn.

    \b
    clearformer plot optimizers
    clearformer plot gradients --out gradients.svg --json > gradients.json
    """
    from json import dumps

    from clearformer.claims.figures import plot as draw
    from clearformer.training.journal import console

    with console.status(f"computing {name}, up to a minute"):
        numbers = draw(name, out, seed)
    print(dumps(numbers, ensure_ascii=False) if json else f"{numbers['picture']}: {numbers['title']}")
