"""clearformer finetune"""

from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, Out, Set, TrainingCommand


@app.command(cls=TrainingCommand)
def finetune(
    ctx: typer.Context,
    model: Model,
    method: Annotated[
        str, typer.Option("--method", metavar="METHOD", help="What learns: full (everything), lora, prefix or head.")
    ] = "full",
    out: Out = None,
    settings: Set = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fine-tuning in --out.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Go on from a trained model with data of your own.

    A translator learns from other pairs, a language model from another text; a classifier is made from labelled texts,
    on a BERT, a GPT or another classifier, or from images, on a classifier of others. It keeps its vocabulary. With
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
    clearformer finetune --model runs/digits --recordings more.tsv
    """
    from json import dumps

    from clearformer.verbs import finetune as verb

    how: Any = method
    report = verb.finetune(model, method=how, out=out, settings=settings, resume=resume, device=device, **ctx.obj)
    if report:
        print(dumps(report) if json else report["run"])
