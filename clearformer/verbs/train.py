"""Train a model from a recipe, or from data alone."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.errors import ConfigError
from clearformer.models.build import model_key
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS, collect, examples, written
from clearformer.tasks.task import Plan, Request

Name = str | Path


def plan(
    recipe: Name | None = None,
    *,
    model: str | None = None,
    settings: Sequence[str] = (),
    device: str = "auto",
    **data: Any,
) -> Recipe:
    """The recipe of a training: read from a file, or chosen from the data. Corpora are read, nothing is written.

    `data` is as `train` takes it.
    """
    chosen = choose(recipe, model, settings, device, data)
    refuse_without_data(chosen)
    return cast(Recipe, chosen.recipe)


def train(
    recipe: Name | Recipe | None = None,
    *,
    model: str | None = None,
    out: Name | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    **data: Any,
) -> dict[str, Any]:
    """Train into a run folder, runs/<data>-<model>-<time> unless given, and return its report with the folder as `run`.

    Without a recipe, `data` names what to train on: pairs=, text=, labels=, images= or recordings=, or the flag of a
    registered task; valid= and test= name further splits, and columns=, text_columns= and label_column= where in the
    files things are. A corpus is one file, or two line-aligned ones as a tuple. `settings` are "table.key=value", as
    --set takes them. To resume, `out` is enough: the folder holds its recipe. Processes of a distributed training
    other than the first return an empty report.
    """
    if resume:
        refuse_with_resume({"recipe": recipe, **data, "model": model})
        chosen = Plan(saved_recipe(out, settings))
    elif isinstance(recipe, Recipe):
        refuse_beside_recipe({**data, "model": model, "settings": list(settings) or None})
        chosen = Plan(recipe)
    else:
        chosen = choose(recipe, model, settings, device, data)
    refuse_without_data(chosen)
    return run(chosen, Path(out) if out else default_folder(chosen.recipe), resume, device)


def choose(
    recipe: Name | None, model: str | None, settings: Sequence[str], device: str, data: Mapping[str, Any]
) -> Plan:
    """The recipe in a file, or one that the task of the data chooses."""
    given = collect(data)
    if recipe is not None and given is not None:
        raise ConfigError(
            f"both a recipe, {recipe}, and --{given.flag.name} are given",
            "a recipe says where its data is; two aligned files are joined by a comma: --pairs train.en,train.de",
        )
    if recipe is not None:
        named = [f"model.{model_key(model)}={model}"] if model else []
        return Plan(Recipe.read(Path(recipe), [*named, *settings]))
    if given is None:
        raise ConfigError("there is nothing to train on", f"give a recipe, {examples()}")
    task = TASKS.resolve(given.flag.task)
    return task.plan(Request(task.sources(given), model, settings, device, Recipe.parse))


def refuse_beside_recipe(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"`{name}` is given beside a Recipe, which says everything", f"leave `{name}` out")


def refuse_with_resume(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            option = "a recipe" if name == "recipe" else written(name)
            raise ConfigError(
                f"a training is resumed as it is: {option} cannot be given again", "give --resume and --out alone"
            )


def refuse_without_data(chosen: Plan) -> None:
    if chosen.recipe.data is None:
        raise ConfigError(
            "there is nothing to train on: an imported model's recipe has no [data]",
            f"go on from it with data of yours: clearformer finetune --model FOLDER, with {examples()}",
        )


def saved_recipe(out: Name | None, settings: Sequence[str]) -> Recipe:
    if out is None:
        raise ConfigError("--resume needs --out", "name the run folder to go on with")
    folder = RunFolder(Path(out))
    folder.require()
    return Recipe.read(folder.recipe, settings)


def run(chosen: Plan, folder: Path, resume: bool, device: str, base: Any = None) -> dict[str, Any]:
    """Train by a plan; the report with the folder as `run`."""
    recipe = cast(Recipe, chosen.recipe)
    if not resume:
        probe(recipe)
    report = fit.train(recipe, folder, resume, device, base, chosen.survey)
    return {"run": str(folder), **report} if report else {}


def probe(recipe: Recipe) -> None:
    """Read an example of each corpus now: a missing test set should not be found out after a day of training."""
    for split in ("train", "valid", "test"):
        if (source := recipe.data.source(split)) is not None:
            next(source.read())


def default_folder(recipe: Any, model: str | None = None) -> Path:
    """runs/<data>-<model>-<time>"""
    path = recipe.data.train.path
    data = (path[0] if isinstance(path, tuple) else path).resolve().name.split(".")[0]
    size = model or getattr(recipe.model, "preset", None) or recipe.model.kind
    return Path("runs") / f"{data}-{size}-{time.strftime('%Y%m%d-%H%M%S')}"
