"""The command `clearformer sweep`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import (
    BatchSize,
    Epochs,
    Json,
    NewModel,
    Rate,
    RecipeFile,
    RunDevice,
    RunPrecision,
    Set,
    Steps,
    TrainingCommand,
)


@app.command(cls=TrainingCommand)
def sweep(
    ctx: typer.Context,
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            metavar="TABLE.KEY=VALUES",
            help="Setting to vary: values such as 0.001,0.003, or a range such as 0.0001..0.01; repeatable.",
            rich_help_panel="What to try",
        ),
    ],
    recipe: RecipeFile = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="grid: every combination; random: some; halving: some, of which only the best are trained to the end.",
            show_default="grid, or random if there is a range",
            rich_help_panel="What to try",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of runs of random and halving; the first one changes nothing.",
            show_default="9",
            rich_help_panel="What to try",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the random choices.", rich_help_panel="What to try")
    ] = 0,
    model: NewModel = None,
    steps: Steps = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch_size: BatchSize = None,
    precision: RunPrecision = None,
    settings: Set = [],  # noqa: B006
    at_once: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of runs to train at the same time.",
            show_default="one per GPU, or one on the CPU",
            rich_help_panel="Run",
        ),
    ] = None,
    device: RunDevice = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Folder for the runs and the results.",
            show_default="runs/sweep-<data>-<model>-<time>",
            rich_help_panel="Output",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train with many settings, and keep the best.

    Examples:
      clearformer sweep --pairs train.tsv --over optim.lr=0.001,0.003,0.01
      clearformer sweep --labels reviews.csv --over optim.lr=0.0001..0.01 --runs 12
      clearformer sweep mine.toml --over model.n_layers=2..6 --method halving --out runs/depth

    Runs are ranked by the validation metric of their task. The first run is the default, which changes nothing. With
    halving, all runs train for a part of their steps, the best third of them three times as long, and so on.

    Prints a table, and writes results.json, a figure, and `best`, a link to the best run, to --out. To resume an
    interrupted sweep, repeat the command with its --out.
    """
    from clearformer.cli.columns import in_columns
    from clearformer.training.journal import console
    from clearformer.verbs.sweep import sweep as verb

    options: dict[str, Any] = {"over": over, "method": method, "runs": runs, "seed": seed, "at_once": at_once}
    options |= {"model": model, "settings": settings, "device": device, "out": out, "say": console.print}
    options |= {"steps": steps, "epochs": epochs, "lr": lr, "batch_size": batch_size, "precision": precision}
    results = verb(recipe, **options, **ctx.obj)
    if json:
        print_json(results)
        return
    print(in_columns(cells(results), is_last_left=True))
    print(results["best"])


def cells(results: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of the table as text, header first."""
    from clearformer.comparison.space import shown

    tests = results["table"][0]["test"]
    metric = results["metric"] if results["metric"] in tests else next(iter(tests), None)
    rows = [["", results["metric"], *([] if metric is None else [f"test {metric}"]), "steps", "settings"]]
    for row in results["table"]:
        values = [row.get("score"), *([] if metric is None else [row.get("test", {}).get(metric)])]
        numbers = ["–" if value is None else f"{value:.4g}" for value in values]
        what = f"{shown(row['settings'])} (failed)" if "error" in row else shown(row["settings"])
        rows.append([row["name"], *numbers, f"{row.get('steps', 0):,}", what])
    return rows
