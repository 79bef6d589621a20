"""clearformer merge"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def merge(
    adapter: Annotated[
        Path, typer.Argument(metavar="ADAPTER", help="Run of `finetune --method lora`, or adapter folder of peft.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Run folder to write; must not exist or be empty.")],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Base of a peft adapter, if it has moved.",
            show_default="the path recorded in the adapter",
            rich_help_panel="Model",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Merge a LoRA adapter into the weights of its base.

    Examples:
      clearformer merge runs/lora runs/merged                     # a run of finetune --method lora
      clearformer merge adapter runs/merged                       # an adapter of peft
      clearformer merge adapter runs/merged --base runs/smollm2   # whose base has moved

    The result is a run folder that does not need the base any more. Prints the run folder.
    """
    from json import dumps

    from clearformer.verbs.merge import merge as merge_adapter

    report = merge_adapter(adapter, out, base)
    print(dumps(report) if json else report["run"])
