"""The command `clearformer inspect`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def inspect(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Run folder, bundled model, preset or architecture.")],
    length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Size of the example input: tokens in each text, or pixels per side of an image.",
            show_default="32 tokens, or the image size of the model",
            rich_help_panel="Input",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show the layers of a model: shapes, parameters, cost.

    Examples:
      clearformer inspect transformer-base                 # a preset
      clearformer inspect gpt3-175b
      clearformer inspect alexnet                          # with receptive fields
      clearformer inspect runs/m30k --length 20 --json     # a run folder

    The cost is the number of multiply-adds for one text, sentence pair, image or recording. Image models also show the
    receptive field of each layer (column `sees`). Nothing is computed, so large models need no time or memory.
    """
    from clearformer.verbs.inspect import inspect as summarize

    result = summarize(name, length)
    if json:
        print_json(result)
        return
    width = max(len(layer["name"]) for layer in result["layers"])
    sees = any(layer["receptive_field"] for layer in result["layers"])
    print(f"{'layer':<{width}}  {'output':>18}  {'parameters':>12}  {'multiply-adds':>15}{'  sees' if sees else ''}")
    for layer in result["layers"]:
        shape, field = "×".join(map(str, layer["output"])), layer["receptive_field"] or ""
        row = f"{layer['name']:<{width}}  {shape:>18}  {layer['parameters']:>12,}  {layer['multiply_adds']:>15,}"
        print(f"{row}  {field:>4}" if sees else row)
    if "temperature" in result:
        print(f"calibrated: probabilities are softmax(logits / {result['temperature']:.3g})")
    print(f"{'total':<{width}}  {'':>18}  {result['parameters']:>12,}  {result['multiply_adds']:>15,}")
