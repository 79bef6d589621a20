"""clearformer finetune"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import ColumnPair, Device, Json, Model, Out, Pairs, Set, Test, Valid, columns, corpus


@app.command()
def finetune(
    model: Model,
    pairs: Pairs,
    valid: Valid = None,
    test: Test = None,
    column: ColumnPair = "0,1",
    out: Out = None,
    settings: Set = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fine-tuning in --out.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Go on from a trained translator with other pairs.

    It keeps its vocabulary and learns at a tenth of the rate. The run folder is printed at the end.

    \b
    clearformer finetune --model runs/m30k --pairs more.tsv
    clearformer finetune --model runs/m30k --pairs more.tsv --set train.steps=500
    """
    from json import dumps

    from clearformer import verbs

    report = verbs.finetune(
        model,
        corpus(pairs) or pairs,
        valid=corpus(valid),
        test=corpus(test),
        columns=columns(column),
        out=out,
        settings=settings,
        resume=resume,
        device=device,
    )
    if report:
        print(dumps(report) if json else report["run"])
