"""clearformer merge"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command()
def merge(
    adapter: Annotated[
        Path, typer.Argument(metavar="ADAPTER", help="A run that LoRA tuned, or a folder that peft wrote.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The run folder to write.")],
    base: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The base of the adapter, if it is not where the adapter says.")
    ] = None,
    json: Json = False,
) -> None:
    """Add a LoRA adapter to the weights of its base.

    \b
    clearformer merge runs/lora runs/merged
    clearformer merge adapter runs/merged --base runs/smollm2
    """
    from json import dumps

    from clearformer.verbs.merge import merge as merge_adapter

    report = merge_adapter(adapter, out, base)
    print(dumps(report) if json else report["run"])
