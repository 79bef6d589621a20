"""The command `clearformer demo`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import BatchSize, Command, Epochs, Json, Rate, RunPrecision, Set, Steps


@app.command(cls=Command)
def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Run folder to write.", show_default="runs/demo-<time>", rich_help_panel="Output"
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="N", help="Seed of the corpus and of training.", rich_help_panel="Model and settings"),
    ] = 0,
    steps: Steps = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch_size: BatchSize = None,
    precision: RunPrecision = None,
    settings: Set = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Train and evaluate a translator on the bundled corpus.

    Examples:
      clearformer demo
      clearformer demo --steps 300                  # a shorter run
      clearformer demo --seed 1 --out runs/demo-1   # another corpus

    Trains a small English-Hindi translator on a synthetic corpus, prints its BLEU on three test sets of increasing
    difficulty, plots its attention, and translates three sentences with the bundled English-French model.
    """
    from clearformer.training.journal import console
    from clearformer.verbs.choices import all_settings
    from clearformer.verbs.demo import demo as run_demo

    chosen = all_settings(settings, steps=steps, epochs=epochs, lr=lr, batch_size=batch_size, precision=precision)
    result = run_demo(out, (f"train.seed={seed}", *chosen), seed, console.print if json else print)
    if json:
        print_json(result)
