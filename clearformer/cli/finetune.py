"""clearformer finetune"""

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
    Model,
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
def finetune(
    model: Model,
    pairs: Pairs = None,
    text: Text = None,
    labels: Labels = None,
    images: Images = None,
    method: Annotated[
        str, typer.Option("--method", metavar="METHOD", help="What learns: full (everything), lora, prefix or head.")
    ] = "full",
    valid: Valid = None,
    test: Test = None,
    column: ColumnPair = "0,1",
    text_column: TextColumns = None,
    label: LabelColumn = None,
    out: Out = None,
    settings: Set = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fine-tuning in --out.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Go on from a trained model with data of your own.

    A translator learns from other pairs, a language model from another text; a classifier is made from labelled texts,
    on a BERT, a GPT or another classifier, or from pictures, on a classifier of others. It keeps its vocabulary. With
    lora, prefix and head only what learns is saved, and MODEL must stay where it is, or move along with the run. The
    run folder is printed at the end.

    \b
    clearformer finetune --model runs/m30k --pairs more.tsv
    clearformer finetune --model runs/m30k --pairs more.tsv --method lora --set train.steps=500
    clearformer finetune --model runs/book --text other.txt
    clearformer finetune --model runs/book --text other.txt --method lora
    clearformer finetune --model all-MiniLM-L6-v2 --labels reviews.tsv --method head
    clearformer finetune --model runs/bert --labels mrpc.tsv --text-columns 3,4 --label-column 0
    clearformer finetune --model runs/photos --images others/ --method head
    """
    from json import dumps

    from clearformer.verbs import training

    split = corpus if pairs is not None else files if text is not None else (lambda name: name)
    way: Any = method
    report = training.finetune(
        model,
        corpus(pairs),
        text=files(text),
        labels=labels,
        images=images,
        method=way,
        valid=split(valid),
        test=split(test),
        columns=columns(column),
        text_columns=text_columns(text_column),
        label_column=label_column(label),
        out=out,
        settings=settings,
        resume=resume,
        device=device,
    )
    if report:
        print(dumps(report) if json else report["run"])
