"""One training from first to last: resolve the recipe, prepare the data, build the model, train, test, report.

train      all of it, into a run folder
set_up     everything up to the first step
prepare    data and vocabulary in the run folder, and the final recipe, written before any example is stored
"""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.checkpoint import RunFolder, versions, write_json, write_text
from clearformer.errors import CheckpointError, Interrupted, MachineError
from clearformer.layers.linear import pack
from clearformer.loading.open import located, on_base, open_base, open_model, take_weights
from clearformer.memory import keep_freed_memory, peak_mb
from clearformer.metric import Metric
from clearformer.models.build import build_model
from clearformer.recipe import Recipe
from clearformer.tasks import task_named
from clearformer.tasks.task import TOKENIZER_FILES, Pretrained, Task, discard, is_prepared
from clearformer.training.compiling import compiled
from clearformer.training.distributed import World, join_world, leave_world, shard
from clearformer.training.journal import console, read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.precision import built_in, make_deterministic, pick_device
from clearformer.tuning.methods import tune


def train(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    device: str = "auto",
    base: Pretrained | None = None,
    survey: Any = None,
) -> dict[str, Any]:
    """Run a recipe into a folder; returns the report.

    `base` is the model that [tuning] names, if it is open already. `survey` is what zero configuration learnt of the
    data, so that it is not read again.
    """
    where = pick_device(device)
    if where.type == "cpu":
        keep_freed_memory()
    world = join_world(where)
    trainer = None
    try:
        run = RunFolder(world.agree(out))
        with run.lock() if world.is_first else nullcontext():
            claim_folder(run, recipe, resume, world)
            if recipe.train.deterministic:
                make_deterministic()
            trainer, task = set_up(recipe, run, where, world, base, survey)
            if resume and run.last.exists():
                trainer.resume()
                console.print(f"resumed at step {trainer.progress.step:,} of {task.recipe.train.steps:,}")
            elif recipe.tuning is not None:
                trainer.save()  # from here on a full fine-tuning no longer needs its base
            if resume and world.is_first:
                write_text(run.recipe, task.recipe.dump())  # settings may have changed
            trainer.train(task.steps(world))
    except Interrupted:
        assert trainer is not None
        console.print(f"interrupted; saved at step {trainer.progress.step:,}. Go on with:")
        console.print(f"  clearformer train --resume --out {run.path}")
        raise
    finally:
        leave_world()
    return finish(task, run, trainer, where) if world.is_first else {}


def claim_folder(run: RunFolder, recipe: Recipe, resume: bool, world: World) -> None:
    """See that the folder may be trained into, and clear away what a killed process left."""
    start = None if recipe.tuning is None else recipe.tuning.base
    if resume:
        run.require()
    elif run.last.exists() or run.model.exists() or (start is not None and is_same(Path(start), run.path)):
        raise CheckpointError(
            f"{run.path} holds a training already", "add --resume to go on with it, or choose another --out"
        )
    elif not run.exists and (others := [name for name in (*TOKENIZER_FILES, "data") if (run.path / name).exists()]):
        raise CheckpointError(f"{run.path} is not a run folder and holds `{others[0]}` already", "choose another --out")
    world.barrier()
    if world.is_first:
        run.sweep()
        if not resume:
            discard(run)


def is_same(one: Path, two: Path) -> bool:
    return one.exists() and one.resolve() == two.resolve()


def set_up(
    recipe: Recipe,
    run: RunFolder,
    device: torch.device,
    world: World,
    base: Pretrained | None = None,
    survey: Any = None,
) -> tuple[Trainer, Task]:
    """Everything a training needs, built in the order that makes it repeatable."""
    base = base or open_start(recipe, run)
    task = prepare(recipe, run, world, base, survey)
    final = task.recipe
    torch.manual_seed(final.train.seed)
    with built_in(final.train.precision):
        model = build_model(final.model).to(device)
    if base is not None:
        take_weights(model, base)
    learning = tune(model, final.tuning) if final.tuning is not None else None
    if world.is_first:
        announce(task, model, device, world)
    plain = task.build_objective()
    carried = getattr(plain, "carried", None)
    objective = compiled(plain, model, final.train.compile)
    if final.train.parallel == "shard" and world.size > 1:
        shard(model, device)
    saved = learning if final.tuning is not None and final.tuning.is_partial else None
    parts = (model, objective, final.optim.build(model), final.schedule, final.train, run, device, world)
    metric = task.deciding_metric(final)
    return Trainer(*parts, task.validation(device), task.facts, saved, task.unit, carried, metric), task


def open_start(recipe: Recipe, run: RunFolder) -> Pretrained | None:
    """The model that a training goes on from, if it does. Once all its weights are saved, it is not needed."""
    tuning = recipe.tuning
    if tuning is None or tuning.base is None or (run.last.exists() and not tuning.is_partial):
        return None
    return open_base(located(tuning, run.path))


def prepare(recipe: Recipe, run: RunFolder, world: World, base: Pretrained | None, survey: Any) -> Task:
    """The task with its data in the run folder and its final recipe. What was prepared before is used as it is.

    This is the one place that changes a recipe: sizes come from the base, the vocabulary and the classes. It is written
    before any example is stored, so that a training that is killed meanwhile can be resumed.
    """
    asked = recipe if base is None else on_base(recipe, base, run.path)
    task = task_named(asked.objective.kind)(asked, run)
    task.deciding_metric(asked)  # an unknown one is refused before the data is read
    if world.is_first and not is_prepared(run):
        with console.status("preparing the data"):
            task.learn(base, survey)
            run.path.mkdir(parents=True, exist_ok=True)
            write_text(run.recipe, task.settle().dump())
            task.save()
            task.store()
    world.barrier()
    task.load()
    task.recipe = task.settle()
    return task


def announce(task: Task, model: nn.Module, device: torch.device, world: World) -> None:
    """Say what is about to happen."""
    recipe, n_parameters = task.recipe, sum(p.numel() for p in model.parameters())
    n_learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    learning = (
        f" ({n_learning:,} of them learn, {100 * n_learning / n_parameters:.2g} %)" if n_learning < n_parameters else ""
    )
    console.print(
        f"{task.describe()}, {task.steps(world).count(0):,} steps an epoch; "
        f"{getattr(recipe.model, 'preset', None) or recipe.model.kind} with {n_parameters:,} parameters{learning} "
        f"on {device}{f' and {world.size - 1} more' if world.size > 1 else ''}; {recipe.train.budget(task.unit)}"
    )


def finish(task: Task, run: RunFolder, trainer: Trainer, device: torch.device) -> dict[str, Any]:
    """Test the best weights, draw the curves, write the report."""
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
    if task.has_test:
        best = open_model(run.path, str(device))
        pack(best.network)
        report["test"] = task.test(best)
    write_json(run.report, report)
    draw_curves(run, task.metrics(task.recipe))
    return report


def draw_curves(run: RunFolder, metrics: tuple[Metric, ...]) -> None:
    """curves.png, where figures can be drawn; a run is whole without it."""
    try:
        from clearformer.plots.curves import plot_curves
    except MachineError as error:
        console.print(f"no curves.png: {error}")
        return
    panels: Mapping[str, str] = {metric.title: metric.name for metric in metrics}
    plot_curves(read_metrics(run.metrics), run.path / "curves.png", panels)
