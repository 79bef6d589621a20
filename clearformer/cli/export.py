"""The command `clearformer export`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import MODEL_HELP, Command, Json


@app.command(cls=Command)
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; it must be new or empty.")],
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="huggingface (for from_pretrained), onnx, ctranslate2, or torchvision (safetensors).",
            rich_help_panel="Output",
        ),
    ] = "huggingface",
    json: Json = False,
) -> None:
    """Export a model for Hugging Face, ONNX, CTranslate2 or torchvision.

    Examples:
      clearformer export runs/shakespeare hub/shakespeare            # for transformers
      clearformer export runs/photos hub/photos                      # with its image processor
      clearformer export runs/mine mine-onnx --format onnx           # with greedy search inside
      clearformer export runs/en-fr en-fr-ct2 --format ctranslate2
      clearformer export runs/resnet18 resnet18 --format torchvision

    The folder contains the weights, the configuration and the tokenizer or image processor. A model is exported as the
    published architecture that it matches; a model that matches none is refused.
    """
    from clearformer.verbs.export import export_model

    report = export_model(model, out, format)
    print_json(report) if json else print(report["folder"])
