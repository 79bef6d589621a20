"""A run from start to end: resolve the recipe, prepare the data, build the model, train, test, report.

train      the whole run, in its run folder
start      the same run, as a session that the caller drives step by step
set_up     everything before the first step
prepare    store data and vocabulary in the run folder; the final recipe is written before any example is stored
"""

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.checkpoint import CALIBRATION, RunFolder, versions, write_json, write_text
from clearformer.checksums import seal, small_files
from clearformer.errors import CheckpointError, ConfigError, Interrupted, MachineError, Paused
from clearformer.layers.linear import pack
from clearformer.loading.folder import read_class_names, require_intact
from clearformer.loading.open import located, on_base, open_base, open_model, taking
from clearformer.memory import is_out_of_memory, keep_freed_memory, peak_mb
from clearformer.metric import Metric
from clearformer.models.build import build_deferred, build_model, model_class, require_memory
from clearformer.models.deferred import Deferred
from clearformer.recipe import Recipe
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.task import TOKENIZER_FILES, Pretrained, Task, discard, is_prepared
from clearformer.training.compiling import How, Objective, choose, compiled
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World, join_world, leave_world, shard
from clearformer.training.journal import console, read_metrics
from clearformer.training.loggers import Callback, Loggers
from clearformer.training.loop import Trainer
from clearformer.training.meeting import is_lost, lost
from clearformer.training.precision import built_in, make_deterministic, pick_device
from clearformer.training.recompute import recompute_blocks
from clearformer.training.session import Session, say_saved
from clearformer.tuning.methods import tune
from clearformer.wording import agree, count


def train(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    device: str = "auto",
    base: Pretrained | None = None,
    survey: Any = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train the model of a recipe in the folder `out`, and return the report.

    `base` is the base model of [tuning], if the caller has opened it already. `survey` holds the statistics of the data
    that the automatic recipe was derived from, so that the data is not read twice.
    """
    return start(recipe, out, resume, device, base, survey, callbacks).finish()


def start(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    device: str = "auto",
    base: Pretrained | None = None,
    survey: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Session:
    """Do everything before the first step, and return the session that trains. The arguments are those of `train`."""
    context = opened(recipe, out, resume, device, base, survey, callbacks)
    trainer, task = context.__enter__()
    is_tested = trainer.world.is_first or trainer.is_sharded
    test = partial(finish, task, trainer.run, trainer, trainer.device) if is_tested else dict
    return Session(trainer, task.steps(World(size=trainer.progress.ranks)), test, context)


@contextmanager
def opened(
    recipe: Recipe,
    out: Path,
    resume: bool,
    device: str,
    base: Pretrained | None,
    survey: Any,
    callbacks: Sequence[Callback],
) -> Iterator[tuple[Trainer, Task]]:
    """Hold the run folder, and the group of processes, while the run is trained. Errors of the steps are explained."""
    where = pick_device(device)
    if where.type == "cpu":
        keep_freed_memory()
    elif where.type == "cuda":
        torch.cuda.set_device(where)  # graphs, streams and seeds use the current device
    world = join_world(where, recipe.train.timeout)
    trainer, settings = None, recipe.train
    try:
        loggers = Loggers(recipe.train.logger_names, callbacks) if world.is_first else Loggers()
        run = RunFolder(world.agree(out))
        with run.lock() if world.is_first else nullcontext():
            claim_folder(run, recipe, resume, world)
            if world.is_first and not resume:
                write_text(run.requested, recipe.dump())
            recipe = keep_given(recipe, run, world)
            if recipe.train.deterministic:
                make_deterministic()
            trainer, task = set_up(recipe, run, where, world, base, survey, loggers)
            settings = task.recipe.train
            if resume and run.checkpoint.exists():
                trainer.resume()
                console.print(f"resumed at step {trainer.progress.step:,} of {task.recipe.train.steps:,}")
            elif recipe.tuning is not None:
                trainer.save()  # from here on, full fine-tuning no longer needs its base model
            check_ranks(trainer)
            if resume and world.is_first:
                write_text(run.recipe, task.recipe.dump())  # settings may have changed
            loggers.begin(run.path, task.recipe.tables(), trainer.progress.step, resume)
            world.barrier()
            yield trainer, task
    except Interrupted as ending:
        assert trainer is not None
        say_saved("paused" if isinstance(ending, Paused) else "interrupted", trainer)
        raise
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise out_of_memory(settings, where) from error
        if isinstance(error, MemoryError) or world.size == 1 or not is_lost(error):
            raise
        raise lost(settings.timeout) from error
    finally:
        leave_world(world)


def check_ranks(trainer: Trainer) -> None:
    """Check that the micro-batches of a step can be divided over the ranks, whose number may have changed."""
    at, size, config = trainer.progress, trainer.world.size, trainer.config
    at.ranks = at.ranks or size
    n = at.ranks * config.accumulation
    if size > n or (config.parallel == "shard" and n % size):
        raise ConfigError(
            f"the run has {count(n, 'micro-batch', 'micro-batches')} in each step, which cannot be divided over "
            f"{count(size, 'process', 'processes')}",
            f"use {count(at.ranks, 'process', 'processes')}, as when the run was started",
        )


def out_of_memory(train: TrainConfig, device: torch.device) -> MachineError:
    smaller = f"--set train.tokens={max(1, train.tokens // 2)} --set train.accumulation={2 * train.accumulation}"
    recompute = ", or recompute activations: --set train.recompute=blocks" if train.recompute == "none" else ""
    return MachineError(
        f"the memory of {'this machine' if device.type == 'cpu' else 'the GPU'} is too small for this training",
        f"use smaller batches: {smaller}{recompute}",
    )


def claim_folder(run: RunFolder, recipe: Recipe, resume: bool, world: World) -> None:
    """Check that the folder can be used for this run, and remove the temporary files of killed processes."""
    start = None if recipe.tuning is None else recipe.tuning.base
    if resume:
        run.require()
    elif run.checkpoint.exists() or run.model.exists() or (start is not None and is_same(Path(start), run.path)):
        raise CheckpointError(
            f"{run.path} already contains a run",
            f"resume it with `clearformer train --resume --out {run.path}`, or choose another --out",
        )
    elif not run.exists and (others := [name for name in (*TOKENIZER_FILES, "data") if (run.path / name).exists()]):
        raise CheckpointError(f"{run.path} is not a run folder, but contains `{others[0]}`", "choose another --out")
    world.barrier()
    if world.is_first:
        run.sweep()
        if not resume:
            discard(run)
        elif (run.path / CALIBRATION).exists():
            (run.path / CALIBRATION).unlink()  # it belongs to weights that may change now
            console.print("the run is no longer calibrated; repeat clearformer evaluate --calibrate after training")


def keep_given(recipe: Recipe, run: RunFolder, world: World) -> Recipe:
    """Copy data that was given as Python objects to the run folder, and return the recipe with the paths of the copies.

    The run can then be resumed, and its recipe used again, without the objects.
    """
    data = recipe.data
    for split in getattr(data, "splits", ()):
        source = data.source(split)
        if getattr(source, "given", None) is None:
            continue
        old = source.path[0] if isinstance(source.path, tuple) else source.path
        copy = run.given / split / old.name
        if not is_same(old, copy) and world.is_first:
            try:
                shutil.rmtree(copy.parent, ignore_errors=True)
                shutil.copytree(old.parent, copy.parent)
            except OSError as error:
                raise MachineError(
                    f"{source.given} cannot be copied to {copy.parent} ({str(error).partition(chr(10))[0]:.200})",
                    "free some space, or choose another --out",
                ) from None
        path = copy if data.root == Path() else copy.resolve()
        data = data.changed(**{split: getattr(data, split).changed(path=path)})
    return recipe if data is recipe.data else recipe.with_tables(data=data)


def is_same(one: Path, two: Path) -> bool:
    return one.exists() and one.resolve() == two.resolve()


def set_up(
    recipe: Recipe,
    run: RunFolder,
    device: torch.device,
    world: World,
    base: Pretrained | None = None,
    survey: Any = None,
    loggers: Loggers | None = None,
) -> tuple[Trainer, Task]:
    """Build the trainer and the task of a run, in an order that keeps random draws repeatable."""
    base = base or open_start(recipe, run)
    task = prepare(with_batches(recipe, run, device, world), run, world, base, survey)
    final = task.recipe
    torch.manual_seed(final.train.seed)
    is_sharded = final.train.parallel == "shard" and world.size > 1
    require_memory(final.model, world.size if is_sharded else 1)
    with built_in(final.train.precision):
        # A sharded model is filled by `shard`, a block at a time: no rank ever holds the whole.
        model, later = build_deferred(final.model) if is_sharded else (build_model(final.model), nullcontext())
    model = model if is_sharded else model.to(device)
    take = None if base is None else taking(model, base)
    if take is not None and not is_sharded:
        take()
    with later:
        learning = tune(model, final.tuning) if final.tuning is not None else None
    if world.is_first:
        announce(task, model, device, world)
    plain = task.build_objective()
    carried = getattr(plain, "carried", None)
    how, is_recorded = how_to_run(task, model, plain, device, world)
    if final.train.recompute == "blocks" and not recompute_blocks(model) and not hasattr(plain, "chunk"):
        console.print(f"{final.model.kind} has no blocks to recompute: train.recompute = blocks has no effect")
    objective = compiled(plain, model, how)
    if isinstance(later, Deferred):
        shard(model, device, later.fill)
        if take is not None:
            take()  # each rank its rows
    saved = learning if final.tuning is not None and final.tuning.is_partial else None
    optimizer = final.optim.build(model, is_recorded)
    parts = (model, objective, optimizer, final.schedule, final.train, run, device, world)
    metric = task.deciding_metric(final)
    validate = task.validation(device, world.is_first)
    trainer = Trainer(*parts, validate, task.facts, saved, task.unit, carried, metric, loggers, task.complete)
    trainer.finishes_step = how not in ("blocks", "whole")  # nothing is lost with a first step that compiles
    return trainer, task


def with_batches(recipe: Recipe, run: RunFolder, device: torch.device, world: World) -> Recipe:
    """The recipe with train.batches resolved, so that a resumed run sees the same batches on any device."""
    train = recipe.train
    if train.batches != "auto":
        return recipe
    is_model_recordable = bool(getattr(model_class(recipe.model.kind), "is_recordable", False))
    is_fixed = train.compile != "off" and is_model_recordable and not run.checkpoint.exists()
    batches = "fixed" if is_fixed and allows_recording(recipe, device, world) else "free"
    return recipe.with_tables(train=train.changed(batches=batches))


def allows_recording(recipe: Tables, device: torch.device, world: World) -> bool:
    """Whether device, processes and settings allow steps to be recorded as CUDA graphs."""
    return allows_compiling(recipe, device) and recipe.train.recompute == "none" and world.size == 1


def allows_compiling(recipe: Tables, device: torch.device) -> bool:
    """Whether train.compile = auto may compile the model: also with recomputation, and in several processes."""
    return device.type == "cuda" and recipe.optim.has_fused_kernel


def how_to_run(
    task: Task, model: nn.Module, objective: Objective, device: torch.device, world: World
) -> tuple[How, bool]:
    """Resolve train.compile, print the choice, and return it with whether steps are recorded as CUDA graphs."""
    train = task.recipe.train
    is_recordable = bool(getattr(model, "is_recordable", False) and getattr(objective, "is_recordable", False))
    is_suitable = is_recordable and (task.shapes != "many" or world.size > 1)
    can_record = is_suitable and allows_recording(task.recipe, device, world)
    if train.compile != "auto":
        if train.compile == "graph" and not can_record and world.is_first:
            reason = "" if train.recompute == "none" else f" (train.recompute = {train.recompute})"
            console.print(f"the steps of this run cannot be recorded{reason}: train.compile = graph has no effect")
        return train.compile, can_record and train.compile != "off"
    if not (is_suitable and allows_compiling(task.recipe, device)):
        return "off", False
    n_tokens = min(train.steps * train.tokens * train.accumulation, train.max_tokens or sys.maxsize)
    is_uncompiled = train.max_seconds is not None or train.deterministic  # compiled kernels may differ between runs
    how = "graph" if is_uncompiled else choose(model, n_tokens, task.shapes)
    if not can_record:  # the blocks are compiled, but not the chunks of head and loss
        how = "off" if how == "graph" else "blocks"
    compiling = {"blocks": "compiles the blocks of the model and ", "whole": "compiles the model and "}.get(how, "")
    why_not = "recomputes activations" if train.recompute != "none" else "has several processes"
    steps = "records its steps" if can_record else f"{why_not}, so its steps are not recorded"
    if world.is_first:
        console.print(f"training {compiling}{steps} as CUDA graphs (train.compile = {how})")
    return how, can_record


def open_start(recipe: Recipe, run: RunFolder) -> Pretrained | None:
    """Open the base model of a fine-tuning run. It is no longer needed once the run has saved all weights."""
    tuning = recipe.tuning
    if tuning is None or tuning.base is None or (run.checkpoint.exists() and not tuning.is_partial):
        return None
    return open_base(located(tuning, run.path))


def prepare(recipe: Recipe, run: RunFolder, world: World, base: Pretrained | None, survey: Any) -> Task:
    """Store the data in the run folder, and return the task with its final recipe. Data already prepared is reused.

    Only this function changes a recipe: sizes come from the base model, the vocabulary and the classes. The recipe is
    written before any example is stored, so that a run that is killed meanwhile can be resumed.
    """
    requested = recipe if base is None else on_base(recipe, base, run.path)
    task = task_named(requested.objective.kind)(requested, run)
    task.deciding_metric(requested)  # raises for an unknown metric, before the data is read
    if world.is_first and not is_prepared(run):
        with console.status("preparing the data"):
            task.learn(base, survey)
            run.path.mkdir(parents=True, exist_ok=True)
            write_text(run.recipe, task.settle().dump())
            task.save()
            task.store()
    world.barrier()
    require_intact(run, small_files(run.data))
    task.load()
    task.recipe = task.settle()
    if task.recipe.train.epochs is not None:
        task.recipe = in_steps(task.recipe, task.steps(world).count(0))
        if world.is_first:
            write_text(run.recipe, task.recipe.dump())
    return task


def in_steps(recipe: Tables, per_epoch: int) -> Tables:
    """Replace train.epochs by train.steps: an epoch has `per_epoch` steps."""
    epochs = recipe.train.epochs
    assert epochs is not None
    steps = max(1, round(epochs * per_epoch))
    console.print(f"{epochs:,.10g} {agree(epochs == 1, 'epoch is', 'epochs are')} {count(steps, 'step')}")
    return recipe.with_tables(train=recipe.train.changed(epochs=None, steps=steps))


def announce(task: Task, model: nn.Module, device: torch.device, world: World) -> None:
    """Print the data, model, device and budget of the run."""
    recipe, n_parameters = task.recipe, sum(p.numel() for p in model.parameters())
    n_trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    trainable = (
        f" ({n_trainable:,} trainable, {100 * n_trainable / n_parameters:.2g} %)" if n_trainable < n_parameters else ""
    )
    others = f" and {count(world.size - 1, 'other process', 'other processes')}" if world.size > 1 else ""
    console.print(
        f"{task.describe()}, {count(task.steps(world).count(0), 'step')} per epoch; "
        f"{getattr(recipe.model, 'preset', None) or recipe.model.kind} with "
        f"{count(n_parameters, 'parameter')}{trainable} on {device}{others}; {recipe.train.budget(task.unit)}"
    )


def finish(task: Task, run: RunFolder, trainer: Trainer, device: torch.device) -> dict[str, Any]:
    """Test the best checkpoint, write the report, and plot the curves. Only the first process writes."""
    tested = test_best(task, run, trainer, device) if task.has_test else None
    if not trainer.world.is_first:
        return {}
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
    if tested is not None:
        report["test"] = tested
    write_json(run.report, report)
    draw_curves(run, task.metrics(task.recipe))
    seal(run.path, ["curves.png"])
    return report


def test_best(task: Task, run: RunFolder, trainer: Trainer, device: torch.device) -> dict[str, Any]:
    """Test the best checkpoint: opened as by `load`, or by all processes together if none may hold the whole model."""
    if not trainer.is_sharded:
        best = open_model(run.path, str(device))
        pack(best.network)
        return task.test(best)
    recipe = Recipe.read(run.recipe)
    classes = read_class_names(run.path, recipe)
    best = Pretrained(run.path.name, run.path, recipe, trainer.model, task.tokenizers, classes=classes)
    return trainer.tested(lambda model, step: task.test(best))


def draw_curves(run: RunFolder, metrics: tuple[Metric, ...]) -> None:
    """Plot the curves to curves.png. Without matplotlib it is skipped, and the run is still complete."""
    try:
        from clearformer.plots.curves import plot_curves
    except MachineError as error:
        console.print(f"curves.png was not drawn: {error}")
        return
    panels: Mapping[str, str] = {metric.title: metric.name for metric in metrics}
    plot_curves(read_metrics(run.metrics), run.path / "curves.png", panels)
