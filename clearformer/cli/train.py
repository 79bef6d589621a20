"""The command `clearformer train`."""

import sys
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import (
    Balance,
    BatchSize,
    Epochs,
    Exportable,
    Json,
    NewModel,
    Out,
    Rate,
    RecipeFile,
    Resume,
    RunDevice,
    RunPrecision,
    Seed,
    Set,
    Steps,
    TrainingCommand,
)


@app.command(cls=TrainingCommand)
def train(
    ctx: typer.Context,
    recipe: RecipeFile = None,
    model: NewModel = None,
    steps: Steps = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch_size: BatchSize = None,
    seed: Seed = None,
    precision: RunPrecision = None,
    settings: Set = [],  # noqa: B006
    balance: Balance = False,
    exportable: Exportable = False,
    resume: Resume = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the recipe and write nothing.", rich_help_panel="Run")
    ] = False,
    device: RunDevice = "auto",
    out: Out = None,
    json: Json = False,
) -> None:
    """Train a model on your data.

    Examples:
      clearformer train --pairs train.tsv                              # a translator
      clearformer train --text book.txt --model gpt                    # a language model
      clearformer train --labels reviews.tsv --balance                 # a text classifier
      clearformer train --images photos/ --model resnet18 --dry-run    # print the recipe only
      clearformer train recipes/multi30k-en-de.toml --epochs 20 --lr 0.002 --out runs/m30k
      clearformer train --resume --out runs/m30k                       # after an interruption

    Pairs train a translator, text a language model, labelled texts or words a classifier, images a classifier or an
    autoencoder, recordings a speech recogniser.

    Without a recipe, all settings are chosen from the data and printed. --model selects another architecture. For
    pairs: transformer, bahdanau, t5. For text: gpt, lstm, gru, rnn, bert, t5. For labels: bert, bigru, textcnn. For
    images: resnet18, vgg11, googlenet, alexnet, vit, autoencoder, vae. For a name without a size, such as gpt, the
    size is chosen as well. Options such as --steps and --set take precedence over a recipe. docs/recipes.md has more
    examples. Prints the run folder at the end.
    """
    from clearformer.verbs import train as verb

    options: dict[str, Any] = {"settings": settings, "balance": balance, "exportable": exportable, "device": device}
    options |= {"steps": steps, "epochs": epochs, "lr": lr}
    options |= {"batch_size": batch_size, "seed": seed, "precision": precision}
    if dry_run:
        chosen = verb.plan(recipe, model=model, **options, **ctx.obj)
        verb.probe(chosen)
        print_json(chosen.tables()) if json else print(chosen.dump(), end="")
        folder = out or verb.default_folder(chosen)
        print(f"dry run: nothing is written; without --dry-run, the run folder is {folder}", file=sys.stderr)
        return
    report = verb.train(recipe, model=model, out=out, resume=resume, **options, **ctx.obj)
    if report:
        print_json(report) if json else print(report["run"])
