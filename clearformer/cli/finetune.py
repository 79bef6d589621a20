"""The command `clearformer finetune`."""

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
    Out,
    Rate,
    Resume,
    RunDevice,
    RunPrecision,
    Seed,
    Set,
    Steps,
    TrainingCommand,
    model_option,
)


@app.command(cls=TrainingCommand)
def finetune(
    ctx: typer.Context,
    model: Annotated[str, model_option("Model and settings")],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Which weights to train: full (all of them), lora, prefix or head.",
            rich_help_panel="Model and settings",
        ),
    ] = "full",
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
    device: RunDevice = "auto",
    out: Out = None,
    json: Json = False,
) -> None:
    """Fine-tune a trained model on your data.

    Examples:
      clearformer finetune --model runs/m30k --pairs more.tsv                 # a translator
      clearformer finetune --model runs/m30k --pairs more.tsv --method lora --epochs 3
      clearformer finetune --model runs/book --text other.txt                 # a language model
      clearformer finetune --model all-MiniLM-L6-v2 --labels reviews.tsv --method head --balance
      clearformer finetune --model runs/photos --images others/ --method head # an image classifier
      clearformer finetune --resume --out runs/more --model runs/m30k         # after an interruption

    A translator is fine-tuned on pairs, a language model on text, a speech recogniser on recordings. A text classifier
    can start from a BERT, a GPT or another classifier, an image classifier from another image classifier. The
    vocabulary stays the same.

    The methods lora, prefix and head save only the weights they train. Such a run needs MODEL at inference, so keep
    MODEL in place, or move both together. Prints the run folder at the end.
    """
    from clearformer.verbs import finetune as verb

    chosen_method: Any = method
    options: dict[str, Any] = {
        "settings": settings,
        "balance": balance,
        "exportable": exportable,
        "resume": resume,
        "device": device,
    }
    options |= {"steps": steps, "epochs": epochs, "lr": lr}
    options |= {"batch_size": batch_size, "seed": seed, "precision": precision}
    report = verb.finetune(model, method=chosen_method, out=out, **options, **ctx.obj)
    if report:
        print_json(report) if json else print(report["run"])
