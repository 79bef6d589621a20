"""The command `clearformer data`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Json, Set, TrainingCommand


@app.command(cls=TrainingCommand)
def data(
    ctx: typer.Context,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="What to do: build.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder to write.", rich_help_panel="Output")],
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="tokenizer.json, or a run folder whose tokenizers are used.",
            show_default="learnt from a sample",
            rich_help_panel="Settings",
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of tokens of a new vocabulary.",
            show_default="at most 16,000",
            rich_help_panel="Settings",
        ),
    ] = None,
    settings: Set = [],  # noqa: B006
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of processes.", show_default="one per core", rich_help_panel="Settings"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Tokenise a corpus once, into shards that training opens at once.

    Examples:
      clearformer data build --pairs train.tsv --out built/en-fr
      clearformer data build --text corpus.jsonl --vocab-size 32000 --out built/corpus
      clearformer data build --pairs train.en,train.de --tokenizer runs/mine --out built/en-de
      clearformer data build --pairs dump.jsonl --valid dev.jsonl --workers 4 --out built/dump

    All cores read, tokenise and write. After an interruption, the same command keeps the shards that are finished.
    Training maps the shards into memory, finds any position of an epoch at once, and also reads folders at an address
    such as s3://bucket/en-fr (pip install 'clearformer[remote]'). docs/data.md describes the folder.
    """
    from clearformer.errors import ConfigError, suggest
    from clearformer.verbs.data import build_data

    if action != "build":
        raise ConfigError(f"data {action}: there is no such action", suggest(action, ["build"]))
    options: dict[str, Any] = {"tokenizer": tokenizer, "vocab_size": vocab_size, "settings": settings}
    result = build_data(out, workers=workers, **options, **ctx.obj)
    print_json(result) if json else print(result["folder"])
