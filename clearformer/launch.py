"""A training from first to last: prepare the data, build the model, train, test, report."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.checkpoint import RunFolder, versions, write_json, write_text
from clearformer.errors import CheckpointError, Interrupted, MachineError
from clearformer.loading.bases import fill, located, shaped
from clearformer.loading.opened import Opened
from clearformer.loading.opening import open_base, open_model
from clearformer.memory import keep_freed_memory, peak_mb
from clearformer.metric import BLEU, CER, CHRF, LOSS, PERPLEXITY, WER, Metric
from clearformer.prepare import TOKENIZERS, discard
from clearformer.recipe import Recipe, build_model
from clearformer.tasks import Task, begin
from clearformer.training.compiling import compiled
from clearformer.training.distributed import World, join_world, leave_world, shard
from clearformer.training.journal import console, read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.precision import built_in, make_deterministic, pick_device
from clearformer.tuning.methods import tune

# Until tasks name their metrics themselves.
METRICS = {m.name: m for m in (LOSS, PERPLEXITY, BLEU, CHRF, WER, CER, Metric("error", "Error", lower_is_better=True))}


def train(
    recipe: Recipe, out: Path, resume: bool = False, device: str = "auto", start: Path | None = None
) -> dict[str, Any]:
    """Run a recipe into a folder; returns the report. `start` is a model whose weights and tokenizer to go on from.

    A recipe with a [tuning] names it by itself.
    """
    where = pick_device(device)
    if where.type == "cpu":
        keep_freed_memory()
    world = join_world(where)
    try:
        run = RunFolder(world.agree(out))
        with run.lock() if world.is_first else nullcontext():
            open_folder(run, recipe, resume, world, start)
            if recipe.train.deterministic:
                make_deterministic()
            trainer, task = set_up(recipe, run, where, world, start)
            if resume and run.last.exists():
                trainer.resume()
                console.print(f"resumed at step {trainer.progress.step:,} of {task.recipe.train.steps:,}")
            elif start is not None or recipe.tuning is not None:
                trainer.save()  # from here on the folder stands by itself, whatever becomes of `start`
            if world.is_first:
                write_text(run.recipe, task.recipe.dump())
            trainer.train(task.steps(world))
    except Interrupted:
        console.print(f"interrupted; saved at step {trainer.progress.step:,}. Go on with:")
        console.print(f"  clearformer train --resume --out {run.path}")
        raise
    finally:
        leave_world()
    return finish(task, run, trainer, where) if world.is_first else {}


def open_folder(run: RunFolder, recipe: Recipe, resume: bool, world: World, start: Path | None) -> None:
    """See that the folder may be trained into, clear away what a killed process left, and say what is being made."""
    if resume:
        run.require()
    elif run.last.exists() or run.model.exists() or (start is not None and start.resolve() == run.path.resolve()):
        raise CheckpointError(
            f"{run.path} holds a training already", "add --resume to go on with it, or choose another --out"
        )
    elif not run.exists and (found := [name for name in (*TOKENIZERS, "data") if (run.path / name).exists()]):
        raise CheckpointError(f"{run.path} is not a run folder and holds `{found[0]}` already", "choose another --out")
    world.barrier()
    if not world.is_first:
        return
    run.sweep()
    if not resume:
        discard(run)
        if start is None:
            write_text(run.recipe, recipe.dump())  # a kill during preparation, too, can be resumed


def set_up(
    recipe: Recipe, run: RunFolder, device: torch.device, world: World, start: Path | None
) -> tuple[Trainer, Task]:
    """Everything a training needs, built in the order that makes it repeatable."""
    base = open_start(recipe, run, start)
    task = begin(recipe if base is None else shaped(recipe, base, run.path), run)
    if world.is_first:
        with console.status("preparing the data"):
            task.prepare(base)
    world.barrier()
    recipe = task.open()
    torch.manual_seed(recipe.train.seed)
    with built_in(recipe.train.precision):
        model = build_model(recipe.model).to(device)
    if base is not None:
        fill(model, base)
    part = tune(model, recipe.tuning) if recipe.tuning is not None else None
    if world.is_first:
        announce(task, model, device, world)
    objective = recipe.build_objective()
    carried = getattr(objective, "carried", None)
    objective = compiled(objective, model, recipe.train.compile)
    if recipe.train.parallel == "shard" and world.size > 1:
        shard(model, device)
    name = recipe.train.metric or task.metrics[0]
    metric = METRICS.get(name, Metric(name, name))
    optimizer, validate = recipe.optim.build(model), task.validation(device)
    own = part if recipe.tuning is not None and recipe.tuning.is_partial else None
    parts = (model, objective, optimizer, recipe.schedule, recipe.train, run, device, world)
    return Trainer(*parts, validate, task.facts, own, task.unit, carried, metric), task


def open_start(recipe: Recipe, run: RunFolder, start: Path | None) -> Opened | None:
    """The model that a training goes on from, if it does. Once all its weights are saved, it stands by itself."""
    if recipe.tuning is None:
        return None if start is None else open_model(start)
    if recipe.tuning.base is None or (run.last.exists() and not recipe.tuning.is_partial):
        return None
    return open_base(located(recipe.tuning, run.path))


def announce(task: Task, model: nn.Module, device: torch.device, world: World) -> None:
    """Say aloud what is about to happen."""
    recipe, n_parameters = task.recipe, sum(p.numel() for p in model.parameters())
    n_learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    learning = (
        f" ({n_learning:,} of them learn, {100 * n_learning / n_parameters:.2g} %)" if n_learning < n_parameters else ""
    )
    console.print(
        f"{task.describe(world)}; {getattr(recipe.model, 'preset', None) or recipe.model.kind} with "
        f"{n_parameters:,} parameters{learning} on {device}{f' and {world.size - 1} more' if world.size > 1 else ''}; "
        + recipe.train.budget(task.unit)
    )


def finish(task: Task, run: RunFolder, trainer: Trainer, device: torch.device) -> dict[str, Any]:
    """Test the best weights, draw the pictures, write the report."""
    progress = trainer.progress
    report: dict[str, Any] = {
        "valid": progress.scores,
        "best_step": progress.best_step,
        "steps": progress.step,
        task.unit: progress.tokens,
        "seconds": round(progress.seconds, 1),
        f"{task.unit}_per_second": round(progress.tokens / progress.seconds),
        "peak_mb": round(torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else peak_mb()),
        "seed": task.recipe.train.seed,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "trainable": sum(p.numel() for p in trainer.parameters),
        "versions": versions(),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    if scores := task.test(device):
        report["test"] = scores
    write_json(run.report, report)
    draw_curves(run)
    return report


def draw_curves(run: RunFolder) -> None:
    """curves.png, where pictures can be drawn; a run is whole without it."""
    try:
        from clearformer.plots.curves import plot_curves
    except MachineError as error:
        console.print(f"no curves.png: {error}")
        return
    plot_curves(read_metrics(run.metrics), run.path / "curves.png")
