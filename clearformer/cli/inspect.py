"""clearformer inspect"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command()
def inspect(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder, a bundled model, a preset or a kind.")],
    length: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tokens on each side, default 32; for images, pixels per side."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the layers of a model: shapes, parameters, cost.

    The cost is the number of multiplications for one text, sentence pair, image or recording. For images, the receptive
    field of each layer is shown, too. Nothing is computed, so large models take no time or memory.

    \b
    clearformer inspect transformer-base
    clearformer inspect gpt3-175b
    clearformer inspect alexnet
    clearformer inspect runs/m30k --length 20 --json
    """
    from json import dumps

    from clearformer.verbs.inspect import inspect as summarize

    result = summarize(name, length)
    if json:
        print(dumps(result))
        return
    width = max(len(layer["name"]) for layer in result["layers"])
    sees = any(layer["receptive_field"] for layer in result["layers"])
    print(f"{'layer':<{width}}  {'output':>18}  {'parameters':>12}  {'multiplications':>15}{'  sees' if sees else ''}")
    for layer in result["layers"]:
        shape, field = "×".join(map(str, layer["output"])), layer["receptive_field"] or ""
        row = f"{layer['name']:<{width}}  {shape:>18}  {layer['parameters']:>12,}  {layer['multiplications']:>15,}"
        print(f"{row}  {field:>4}" if sees else row)
    print(f"{'total':<{width}}  {'':>18}  {result['parameters']:>12,}  {result['multiplications']:>15,}")
