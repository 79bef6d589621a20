"""train: train a model from a recipe, or from data with settings chosen automatically."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data.built.folder import is_built
from clearformer.data.corpora import TextCorpora
from clearformer.data.files.open import PAIRS, TABLES
from clearformer.data.objects.staging import staged
from clearformer.data.sources import file_type
from clearformer.errors import ConfigError
from clearformer.interop.huggingface.convert import require_exportable
from clearformer.models.build import model_key
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS, Given, collect, examples, task_named, written
from clearformer.tasks.given_objects import sources_of
from clearformer.tasks.task import Plan, Request
from clearformer.training.journal import console
from clearformer.training.loggers import Callback
from clearformer.training.session import Session
from clearformer.verbs.choices import Settings, all_settings
from clearformer.verbs.restart import require_out, saved_run
from clearformer.wording import count

Name = str | Path
DATA = {
    **dict.fromkeys(TABLES, ("labels", "pairs", "text")),
    **dict.fromkeys(set(PAIRS) - set(TABLES), ("pairs",)),
    ".conll": ("labels",),
    ".npz": ("images",),
}
"""The options for a file, by its type."""


@staged(keep=True)
def plan(
    recipe: Name | None = None,
    *,
    model: str | None = None,
    settings: Settings = (),
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    precision: str | None = None,
    balance: bool = False,
    exportable: bool = False,
    device: str = "auto",
    **data: Any,
) -> Recipe:
    """Return the recipe of a run, read from a file or chosen from the data. Datasets are read; nothing is written.

    The keywords are the same as for `train`.
    """
    settings = all_settings(
        settings, steps=steps, epochs=epochs, lr=lr, batch_size=batch_size, seed=seed, precision=precision
    )
    chosen = choose(recipe, model, settings, device, collect(data), exportable)
    refuse_without_data(chosen)
    describe_batch(chosen.recipe, batch_size)
    return cast(Recipe, balanced(chosen).recipe if balance else chosen.recipe)


@staged()
def start_run(
    recipe: Name | Recipe | None = None,
    *,
    model: str | None = None,
    out: Name | None = None,
    settings: Settings = (),
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    precision: str | None = None,
    balance: bool = False,
    exportable: bool = False,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    **data: Any,
) -> Session:
    """Start a run, and return a session that trains it one step at a time: `for step in session`.

    The arguments are the same as for `train`, which is start_run(…).finish(). The data is prepared and the model is
    built here; the first iteration trains the first step. session.validate() and session.save() act between two steps,
    session.finish() runs the remaining steps, and session.report is the report. A session that is closed earlier, by
    close(), by the end of a `with` block or by the end of the process, saves a checkpoint, so that the run can be
    resumed.
    """
    settings = all_settings(
        settings, steps=steps, epochs=epochs, lr=lr, batch_size=batch_size, seed=seed, precision=precision
    )
    if resume:
        refuse_with_resume(
            {"recipe": recipe, **data, "model": model, "balance": balance or None, "exportable": exportable or None}
        )
        chosen = Plan(saved_recipe(out, settings))
    elif isinstance(recipe, Recipe):
        refuse_with_recipe({**data, "model": model, "settings": list(settings) or None})
        chosen = Plan(recipe)
    else:
        chosen = choose(recipe, model, settings, device, collect(data), exportable)
    refuse_without_data(chosen)
    describe_batch(chosen.recipe, batch_size)
    chosen = balanced(chosen) if balance else chosen
    require_out(cast(Recipe, chosen.recipe), out)
    folder = Path(out) if out else default_folder(chosen.recipe)
    return start(chosen, folder, resume, device, callbacks=callbacks)


def train(
    recipe: Name | Recipe | None = None,
    *,
    model: str | None = None,
    out: Name | None = None,
    settings: Settings = (),
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    precision: str | None = None,
    balance: bool = False,
    exportable: bool = False,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    **data: Any,
) -> dict[str, Any]:
    """Train a model in the folder `out` (by default runs/<data>-<model>-<time>), and return the report.

    Without a recipe, `data` gives the training data: pairs=, text=, labels=, images= or recordings=, or the flag of a
    registered task. valid= and test= are the other splits; columns=, text_columns= and label_column= select columns.

    Data is one file, a tuple of two files aligned line by line, or a Python object: a list of tuples or dictionaries,
    an iterator, a DataFrame (pandas, polars), a dictionary of columns, or a Dataset (datasets, torch). The run keeps a
    copy of an object in its folder `given`.

    `epochs` may be a fraction. `batch_size` counts what train.tokens counts: tokens, frames or images per micro-batch,
    of which a step has one unless train.accumulation is set. All other `settings` are strings "table.key=value", as for
    --set, or a dictionary with the same keys, such as {"model.dropout": 0.1} or {"model": {"dropout": 0.1}}. `balance`
    adjusts the logits for the frequencies of the classes (objective.prior), so that rare classes are predicted as
    readily as frequent ones. `exportable` chooses a form of the model that Hugging Face has.

    `callbacks` are functions, called with each record of metrics.jsonl, {"step": 50, "kind": "train", "loss": 2.1, …},
    or loggers with the methods of clearformer.Logger.

    To resume, give only `out` and resume=True: the folder contains the recipe. The key `run` of the report is the run
    folder. In a distributed run, all processes but the first return an empty report.
    """
    choices: dict[str, Any] = {"steps": steps, "epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed}
    choices |= {"precision": precision, "balance": balance, "exportable": exportable}
    choices |= {"resume": resume, "device": device, "callbacks": callbacks}
    return start_run(recipe, model=model, out=out, settings=settings, **choices, **data).finish()


def choose(
    recipe: Name | None,
    model: str | None,
    settings: Sequence[str],
    device: str,
    given: Given | None,
    exportable: bool = False,
) -> Plan:
    """Read the recipe from a file, or let the task choose a recipe from the data."""
    if recipe is not None and given is not None:
        raise ConfigError(
            f"{recipe} and --{given.flag.name} cannot be combined: a recipe defines its data in [data]",
            "give one of them; two aligned files are joined by a comma: --pairs train.en,train.de",
        )
    if recipe is not None:
        refuse_data(Path(recipe))
        model_settings = [f"model.{model_key(model)}={model}"] if model else []
        chosen = Plan(Recipe.read(Path(recipe), [*model_settings, *settings]))
    elif given is None:
        raise ConfigError("no data to train on", f"give a recipe, {examples()}")
    else:
        task = TASKS.resolve(given.flag.task)
        request = Request(sources_of(task, given), model, settings, device, Recipe.parse, exportable=exportable)
        chosen = task.plan(request)
    if exportable:
        require_exportable(chosen.recipe.model)
    return chosen


def refuse_data(recipe: Path) -> None:
    """Refuse a file or folder with data in the place of a recipe."""
    if recipe.is_dir():
        raise ConfigError(f"{recipe} is a folder, not a recipe", f"for images, one folder per class: --images {recipe}")
    if recipe.is_file() and file_type(recipe) in DATA:
        options = ", ".join(f"--{name} {recipe}" for name in DATA[file_type(recipe)])
        raise ConfigError(f"{recipe} is a data file, not a recipe", f"give it with the option for its data: {options}")


def describe_batch(recipe: Any, batch_size: int | None) -> None:
    """Print what a batch size given by the user counts."""
    if batch_size is not None:
        unit, n = task_named(recipe.objective.kind).batch_unit, recipe.train.accumulation
        size = count(batch_size, unit.replace("s", "", 1), unit)
        console.print(f"batch size: each step has {f'{n:,} micro-batches of ' if n > 1 else ''}{size}")


def balanced(chosen: Plan) -> Plan:
    """Set objective.prior = "data"."""
    objective = chosen.recipe.objective
    if "prior" not in type(objective).model_fields:
        raise ConfigError(
            f"--balance is for classifiers, but objective.kind = {objective.kind} has no classes",
            "remove --balance, or train on --labels or --images",
        )
    if objective.weights is not None:
        raise ConfigError(
            "--balance and objective.weights cannot be combined: both are for classes out of balance",
            "remove one of them",
        )
    recipe = chosen.recipe.with_tables(objective=objective.changed(prior="data"))
    task_named(objective.kind).check(recipe, "--balance")
    return chosen._replace(recipe=recipe)


def refuse_with_recipe(arguments: Mapping[str, object]) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ConfigError(
                f"`{name}` cannot be combined with a Recipe, which is already complete",
                f"omit `{name}`, or change the Recipe",
            )


def refuse_with_resume(arguments: Mapping[str, object]) -> None:
    for name, value in arguments.items():
        if value is not None:
            option = "a recipe" if name == "recipe" else written(name)
            raise ConfigError(
                f"{option} cannot be combined with --resume: the run continues with its saved recipe",
                "give only --resume and --out RUN; --set changes settings",
            )


def refuse_without_data(chosen: Plan) -> None:
    if chosen.recipe.data is None:
        raise ConfigError(
            "no data to train on: the recipe of an imported model has no [data]",
            f"fine-tune it on your data, using clearformer finetune --model RUN with {examples()}",
        )


def saved_recipe(out: Name | None, settings: Sequence[str]) -> Recipe:
    if out is None:
        raise ConfigError("--resume needs --out", "clearformer train --resume --out RUN")
    folder = RunFolder(Path(out))
    folder.require()
    return Recipe.read(folder.recipe, settings)


def start(
    chosen: Plan, folder: Path, resume: bool, device: str, base: Any = None, callbacks: Sequence[Callback] = ()
) -> Session:
    """Start the run of a plan, and return its session."""
    recipe = cast(Recipe, chosen.recipe)
    if not resume and (saved := saved_run(recipe, folder)) is not None:
        recipe, resume = saved, True
    if not resume:
        probe(recipe)
    return fit.start(recipe, folder, resume, device, base, chosen.survey, callbacks)


def probe(recipe: Recipe) -> None:
    """Read one example of each split now, so that a missing test set is reported before training."""
    for split in ("train", "valid", "test"):
        source = recipe.data.source(split)
        if source is not None and not is_built(source.path[0] if isinstance(source.path, tuple) else source.path):
            next(recipe.data.texts(source) if isinstance(recipe.data, TextCorpora) else source.read())


def default_folder(recipe: Any, model: str | None = None) -> Path:
    """Return the default run folder, runs/<data>-<model>-<time>."""
    path = recipe.data.train.path
    data = (path[0] if isinstance(path, tuple) else path).resolve().name.split(".")[0]
    size = model or getattr(recipe.model, "preset", None) or recipe.model.kind
    return Path("runs") / f"{data}-{size}-{time.strftime('%Y%m%d-%H%M%S')}"
