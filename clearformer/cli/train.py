"""clearformer train"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import (
    ColumnPair,
    Device,
    Images,
    Json,
    LabelColumn,
    Labels,
    Out,
    Pairs,
    Set,
    Test,
    Text,
    TextColumns,
    Valid,
    columns,
    corpus,
    files,
    label_column,
    text_columns,
)


@app.command()
def train(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe, a TOML file.")] = None,
    pairs: Pairs = None,
    text: Text = None,
    labels: Labels = None,
    images: Images = None,
    valid: Valid = None,
    test: Test = None,
    column: ColumnPair = "0,1",
    text_column: TextColumns = None,
    label: LabelColumn = None,
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
    """Train on pairs, on text, on labelled texts or on pictures.

    Pairs make a translator, text a language model, labelled texts or pictures a classifier; or pictures an autoencoder.

    On text, --model may name a GPT, a recurrent network (lstm, gru, rnn), a BERT or a T5; on pairs, bahdanau; on
    labelled texts, bigru or textcnn; on pictures, resnet18, vgg11 and the like, or autoencoder and vae. Without a
    recipe, everything is chosen from the data and said aloud; a name without a size, such as gpt, leaves that to be
    chosen too. The run folder is printed at the end.

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
    clearformer train recipes/speech-digits.toml
    clearformer train recipes/multi30k-en-de.toml --set train.steps=8000
    clearformer train --resume --out runs/m30k
    torchrun --nproc-per-node 2 -m clearformer train recipes/multi30k-en-de.toml
    """
    from json import dumps

    from clearformer.verbs import training

    whole = labels is not None or images is not None
    split = files if text is not None else (lambda name: name) if whole else corpus
    given: dict[str, Any] = {
        "pairs": corpus(pairs),
        "text": files(text),
        "labels": labels,
        "images": images,
        "valid": split(valid),
        "test": split(test),
        "columns": columns(column),
        "text_columns": text_columns(text_column),
        "label_column": label_column(label),
        "model": model,
        "settings": settings,
        "device": device,
    }
    if dry_run:
        chosen = training.plan(recipe, **given)
        training.probe(chosen)
        print(dumps(chosen.tables()) if json else chosen.dump(), end="\n" if json else "")
        print(f"nothing is written; without --dry-run: {out or training.default_folder(chosen)}", file=sys.stderr)
        return
    report = training.train(recipe, out=out, resume=resume, **given)
    if report:
        print(dumps(report) if json else report["run"])
