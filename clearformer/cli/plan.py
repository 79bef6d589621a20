"""The command `clearformer plan`."""

import sys
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import (
    BatchSize,
    Epochs,
    Json,
    NewModel,
    Out,
    RecipeFile,
    RunPrecision,
    Set,
    Steps,
    TrainingCommand,
)


@app.command(cls=TrainingCommand)
def plan(
    ctx: typer.Context,
    recipe: RecipeFile = None,
    model: NewModel = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    precision: RunPrecision = None,
    settings: Set = [],  # noqa: B006
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="This machine (auto, cpu or cuda), or a GPU by name: h100, h200, a100, rtx4090 …",
            rich_help_panel="Run",
        ),
    ] = "auto",
    gpus: Annotated[
        int, typer.Option("--gpus", metavar="N", min=1, help="Number of devices.", rich_help_panel="Run")
    ] = 1,
    slurm: Annotated[
        bool,
        typer.Option("--slurm", help="Print a batch file for Slurm instead of the estimate.", rich_help_panel="Output"),
    ] = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Estimate memory, time and hours of a training.

    Examples:
      clearformer plan --pairs train.tsv                               # on this machine
      clearformer plan recipes/ptb-gpt.toml --device h100 --gpus 8     # on GPUs that are not here
      clearformer plan --text book.txt --model gpt2 --json
      clearformer plan recipes/multi30k-en-de.toml --device a100 --slurm > job.sh

    A step of the training runs without memory, on tensors that have only shapes, and all of its allocations and
    operations are counted. On this machine, each operation is timed once. Other devices are computed from their rates;
    docs/plan.md says what the estimate leaves out. If the training does not fit, options that make it fit are shown.
    """
    from clearformer.planning.slurm import batch_file, divide
    from clearformer.verbs.plan import costs

    if slurm:
        divide(gpus)  # before the work
    options: dict[str, Any] = {"model": model, "settings": settings, "steps": steps, "epochs": epochs}
    options |= {"batch_size": batch_size, "precision": precision}
    result = costs(recipe, device=device, gpus=gpus, **options, **ctx.obj)
    if slurm:
        from clearformer.verbs.train import default_folder

        print(
            batch_file(result.estimate, train_arguments(sys.argv), out or default_folder(result.estimate.recipe)),
            end="",
        )
    elif json:
        print_json(result.as_json())
    else:
        print_costs(result)


LEFT_OUT = {"--slurm": 0, "--json": 0, "--device": 1, "--gpus": 1, "--out": 1}  # options of plan, with their values


def train_arguments(words: list[str]) -> list[str]:
    """The arguments of `train` that correspond to a call of `plan`."""
    kept: list[str] = []
    rest = iter(words[words.index("plan") + 1 :])
    for word in rest:
        name, equals, _ = word.partition("=")
        if name not in LEFT_OUT:
            kept.append(word)
        elif LEFT_OUT[name] and not equals:
            next(rest, None)
    return kept


def print_costs(result: Any) -> None:
    """Print parameters, memory by part, time, and advice."""
    from clearformer.wording import count

    plan = result.estimate
    device, n = plan.target.device, plan.target.n_devices
    print(f"{'parameters':<22}{plan.n_parameters:>16,}")
    if plan.n_trainable < plan.n_parameters:
        print(f"{'trainable':<22}{plan.n_trainable:>16,}")
    for part, n_bytes in plan.parts.items():
        print(f"{part:<22}{n_bytes / 1e6:>13,.1f} MB")
    verdict = "fits in" if plan.fits else "does not fit in"
    print(f"{'memory':<22}{plan.peak / 1e6:>13,.1f} MB   {verdict} {device.memory_gb:,.1f} GB of {device.title}")
    devices = f" on {count(n, 'device')}" if n > 1 else ""
    print(f"{'time per step':<22}{plan.seconds_per_step:>14,.3g} s   {plan.flops_per_step / 1e12:,.3g} TFLOP{devices}")
    print(f"{'time':<22}{plan.hours:>14,.3g} h   {count(plan.recipe.train.steps, 'step')}, without validation")
    for options, other in result.advice:
        fits = "fits" if other.fits else "needs"
        print(f"{fits} with {options}: {other.peak / 1e6:,.0f} MB, {other.seconds_per_step:,.3g} s per step")
    if result.note:
        print(f"note: {result.note}", file=sys.stderr)
