"""clearformer export"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command()
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or the name of a bundled model.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    format: Annotated[
        str, typer.Option(metavar="NAME", help="huggingface: what from_pretrained reads; or torchvision: its weights.")
    ] = "huggingface",
    json: Json = False,
) -> None:
    """Write a model, with its tokenizer, as others read it.

    One for pictures goes with how it wants them. Each goes over as the published architecture that it is like; one that
    is like none is refused.

    \b
    clearformer export runs/shakespeare hub/shakespeare
    clearformer export runs/resnet18 resnet18 --format torchvision --json
    """
    from json import dumps

    from clearformer.exchange import export_model

    report = export_model(model, out, format)
    print(dumps(report) if json else report["folder"])
