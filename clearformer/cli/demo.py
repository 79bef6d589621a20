"""clearformer demo"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json, Set


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="The run folder.  [default: runs/demo-<time>]")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the corpus and the training.")] = 0,
    settings: Set = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Train on the bundled corpus, score, draw attention.

    \b
    clearformer demo
    clearformer demo --set train.steps=300
    """
    from json import dumps

    from clearformer.training.journal import console
    from clearformer.verbs.demo import demo as run_demo

    result = run_demo(out, (f"train.seed={seed}", *settings), seed, console.print if json else print)
    if json:
        print(dumps(result))
