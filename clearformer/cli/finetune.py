"""clearformer finetune"""

import time
from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, Set, columns, corpus_path


@app.command()
def finetune(
    model: Model,
    pairs: Annotated[str, typer.Option(help="Sentence pairs: a TSV or JSONL file, or two files, a,b.")],
    valid: Annotated[str | None, typer.Option(help="Validation pairs; held out from --pairs if not given.")] = None,
    test: Annotated[str | None, typer.Option(help="Pairs to test on at the end.")] = None,
    column: Annotated[str, typer.Option("--columns", help="Which two columns: 0,1 or names, en,de.")] = "0,1",
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/<data>-<model>-<time> if not given.")] = None,
    settings: Set = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fine-tuning in --out.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Go on from a trained translator, with more pairs and its own vocabulary.

    clearformer finetune --model runs/m30k --pairs more.tsv
    """
    from json import dumps

    from clearformer.auto import plan_finetune
    from clearformer.launch import train as launch
    from clearformer.load import find
    from clearformer.training.loop import Interrupted

    given = {"train": pairs, "valid": valid, "test": test}
    sources = {split: {"path": corpus_path(text), "columns": columns(column)} for split, text in given.items() if text}
    start = find(model)
    recipe = plan_finetune(start, sources, settings, device)
    stem = Path(pairs.split(",")[0]).name.split(".")[0]
    out = out or Path("runs") / f"{stem}-{start.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        report = launch(recipe, out, resume, device, start)
    except Interrupted:
        raise typer.Exit(130) from None
    print(dumps(report) if json else out)
