"""clearformer export"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command()
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or the name of a bundled model.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    format: Annotated[
        str,
        typer.Option(metavar="NAME", help="huggingface: what from_pretrained reads; or torchvision: weights."),
    ] = "huggingface",
    json: Json = False,
) -> None:
    """Export a model for Hugging Face or torchvision.

    It is written with its tokenizer, or, if it reads images, with its image processor. A model is exported as the
    published architecture that it matches, and refused if it matches none.

    \b
    clearformer export runs/shakespeare hub/shakespeare
    clearformer export runs/resnet18 resnet18 --format torchvision --json
    """
    from json import dumps

    from clearformer.verbs.export import export_model

    report = export_model(model, out, format)
    print(dumps(report) if json else report["folder"])
