"""clearformer train"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Out, Set, TrainingCommand


@app.command(cls=TrainingCommand)
def train(
    ctx: typer.Context,
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe, a TOML file.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="A preset, such as transformer-small, or a kind of model."),
    ] = None,
    out: Out = None,
    settings: Set = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the training in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the recipe, and write nothing.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a model on your data.

    Pairs make a translator, text a language model, labelled texts or images a classifier, recordings a speech
    recogniser; images also an autoencoder.

    Without a recipe, everything is chosen from the data and said. On text, --model may name a GPT, a recurrent network
    (lstm, gru, rnn), a BERT or a T5; on pairs, bahdanau; on labelled texts, bigru or textcnn; on images, resnet18,
    vgg11 and the like, or autoencoder and vae. A name without a size, such as gpt, leaves the size to be chosen. The
    run folder is printed at the end.

    \b
    clearformer train --pairs train.tsv
    clearformer train --pairs train.en,train.de --dry-run
    clearformer train --pairs train.tsv --model bahdanau
    clearformer train --text book.txt
    clearformer train --text book.txt --model lstm
    clearformer train --text book.txt --model bert
    clearformer train --labels reviews.tsv
    clearformer train --labels reviews.tsv --model bigru
    clearformer train --labels names.conll
    clearformer train --images photos/ --model resnet18
    clearformer train --images photos/ --model autoencoder
    clearformer train --images train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz
    clearformer train --recordings train.tsv
    clearformer train recipes/speech-digits.toml
    clearformer train recipes/multi30k-en-de.toml --set train.steps=8000
    clearformer train --resume --out runs/m30k
    torchrun --nproc-per-node 2 -m clearformer train recipes/multi30k-en-de.toml
    """
    from json import dumps

    from clearformer.verbs import train as verb

    if dry_run:
        chosen = verb.plan(recipe, model=model, settings=settings, device=device, **ctx.obj)
        verb.probe(chosen)
        print(dumps(chosen.tables()) if json else chosen.dump(), end="\n" if json else "")
        print(f"nothing is written; without --dry-run: {out or verb.default_folder(chosen)}", file=sys.stderr)
        return
    report = verb.train(recipe, model=model, out=out, settings=settings, resume=resume, device=device, **ctx.obj)
    if report:
        print(dumps(report) if json else report["run"])
