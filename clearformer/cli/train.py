"""clearformer train"""

import time
from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Set, columns, corpus_path
from clearformer.errors import ConfigError


@app.command()
def train(
    recipe: Annotated[Path | None, typer.Argument(help="A recipe, such as recipes/multi30k-en-de.toml.")] = None,
    pairs: Annotated[str | None, typer.Option(help="Sentence pairs: a TSV or JSONL file, or two files, a,b.")] = None,
    valid: Annotated[str | None, typer.Option(help="Validation pairs; held out from --pairs if not given.")] = None,
    test: Annotated[str | None, typer.Option(help="Pairs to test on at the end.")] = None,
    column: Annotated[str, typer.Option("--columns", help="Which two columns: 0,1 or names, en,de.")] = "0,1",
    model: Annotated[str | None, typer.Option(help="A preset, such as transformer-small.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/<data>-<model>-<time> if not given.")] = None,
    settings: Set = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the training in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a model.

    clearformer train --pairs train.tsv                 everything chosen from the data, and said aloud

    clearformer train --pairs train.en,train.de --dry-run

    clearformer train recipes/multi30k-en-de.toml --set train.steps=8000 --out runs/m30k

    clearformer train --resume --out runs/m30k

    torchrun --nproc-per-node 2 -m clearformer train recipes/multi30k-en-de.toml
    """
    from json import dumps

    from clearformer.auto import plan
    from clearformer.launch import train as launch
    from clearformer.recipe import Recipe
    from clearformer.training.loop import Interrupted

    if resume and recipe is None and pairs is None:
        if out is None:
            raise ConfigError("--resume needs --out", "name the run folder to go on with")
        chosen = Recipe.read(out / "recipe.toml", settings)
    elif recipe is not None:
        chosen = Recipe.read(recipe, [*settings, *([f"model.preset={model}"] if model else [])])
    elif pairs is not None:
        given = {"train": pairs, "valid": valid, "test": test}
        sources = {
            split: {"path": corpus_path(text), "columns": columns(column)} for split, text in given.items() if text
        }
        chosen = plan(sources, model, settings, device)
    else:
        raise ConfigError("nothing to train on", "give a recipe, or --pairs train.tsv")
    if out is None:
        data = chosen.data.train.path
        stem = (data[0] if isinstance(data, tuple) else data).name.split(".")[0]
        out = Path("runs") / f"{stem}-{chosen.model.preset or chosen.model.kind}-{time.strftime('%Y%m%d-%H%M%S')}"
    if dry_run:
        print(chosen.dump(), end="")
        return
    try:
        report = launch(chosen, out, resume, device)
    except Interrupted:
        raise typer.Exit(130) from None
    if json:
        print(dumps(report))
    elif report:
        print(f"{out}")
