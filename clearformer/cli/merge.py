"""The command `clearformer merge`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def merge(
    adapter: Annotated[
        Path, typer.Argument(metavar="ADAPTER", help="Run folder of `finetune --method lora`, or peft adapter folder.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Run folder to write; it must be new or empty.")],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Base model of a peft adapter, if it has moved.",
            show_default="the path recorded in the adapter",
            rich_help_panel="Model",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Merge a LoRA adapter into the weights of its base model.

    Examples:
      clearformer merge runs/lora runs/merged                     # a run of finetune --method lora
      clearformer merge adapter runs/merged                       # a peft adapter
      clearformer merge adapter runs/merged --base runs/smollm2   # if its base model has moved

    The result is a run folder that no longer needs the base model. Prints the run folder.
    """
    from clearformer.verbs.merge import merge as merge_adapter

    report = merge_adapter(adapter, out, base)
    print_json(report) if json else print(report["run"])
