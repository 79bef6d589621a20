"""Train a model, or go on from one."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer import launch
from clearformer.auto.images import plan_finetune_images, plan_images
from clearformer.auto.labels import plan_finetune_labels, plan_labels
from clearformer.auto.pairs import plan_finetune_pairs, plan_pairs
from clearformer.auto.text import plan_finetune_text, plan_text
from clearformer.checkpoint import RunFolder
from clearformer.data.labels import Column
from clearformer.data.sources import Columns
from clearformer.errors import ConfigError, suggest
from clearformer.loading.folders import find
from clearformer.recipe import Recipe, model_key
from clearformer.tuning.methods import SAID, Method
from clearformer.verbs.corpora import Corpus, Name, TextColumns, Texts, labelled, pictured, sources_of, written


def plan(
    recipe: Name | None = None,
    *,
    pairs: Corpus | None = None,
    text: Texts | None = None,
    labels: Name | None = None,
    images: Name | None = None,
    valid: Corpus | Texts | None = None,
    test: Corpus | Texts | None = None,
    columns: Columns = (0, 1),
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    model: str | None = None,
    settings: Sequence[str] = (),
    device: str = "auto",
) -> Recipe:
    """The recipe of a training: read from a file, or chosen from the data. Corpora are read, nothing is written."""
    given = at_most_one(pairs=pairs, text=text, labels=labels, images=images)
    splits = (("train", pairs or text or labels or images), ("valid", valid), ("test", test))
    corpora: dict[str, Any] = {split: corpus for split, corpus in splits if corpus}
    if recipe is not None and corpora:
        raise ConfigError(
            f"both a recipe, {recipe}, and {'text is' if text is not None else f'{given[0]} are'} given"
            if given
            else f"a recipe, {recipe}, and other data are given",
            "a recipe says where its data is; two aligned files are joined by a comma: --pairs train.en,train.de",
        )
    if recipe is not None:
        chosen = [f"model.{model_key(model)}={model}"] if model else []
        return Recipe.read(Path(recipe), [*chosen, *settings])
    if text is not None:
        return plan_text(written(corpora), model, settings, device)
    if labels is not None:
        return plan_labels(labelled(corpora, text_columns, label_column), model, settings, device)
    if images is not None:
        return plan_images(pictured(corpora), model, settings, device)
    if pairs is None:
        raise ConfigError(
            "there is nothing to train on",
            "give a recipe, --pairs train.tsv, --text book.txt, --labels reviews.tsv or --images folder",
        )
    return plan_pairs(sources_of(corpora, columns), model, settings, device)


def train(
    recipe: Name | Recipe | None = None,
    *,
    pairs: Corpus | None = None,
    text: Texts | None = None,
    labels: Name | None = None,
    images: Name | None = None,
    valid: Corpus | Texts | None = None,
    test: Corpus | Texts | None = None,
    columns: Columns = (0, 1),
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    model: str | None = None,
    out: Name | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Train into a run folder, runs/<data>-<model>-<time> unless given, and return its report with the folder as `run`.

    To resume, `out` is enough: the folder holds its recipe. Processes of a distributed training other than the first
    return an empty report.
    """
    if resume:
        corpora = {"pairs": pairs, "text": text, "labels": labels, "images": images}
        refuse_with_resume(recipe=recipe, **corpora, valid=valid, test=test, model=model)
        chosen = saved_recipe(out, settings)
    elif isinstance(recipe, Recipe):
        chosen = recipe
    else:
        chosen = plan(
            recipe,
            pairs=pairs,
            text=text,
            labels=labels,
            images=images,
            valid=valid,
            test=test,
            columns=columns,
            text_columns=text_columns,
            label_column=label_column,
            model=model,
            settings=settings,
            device=device,
        )
    return run(chosen, Path(out) if out else default_folder(chosen), resume, device)


def finetune(
    model: Name,
    pairs: Corpus | None = None,
    *,
    text: Texts | None = None,
    labels: Name | None = None,
    images: Name | None = None,
    method: Method = "full",
    valid: Corpus | Texts | None = None,
    test: Corpus | Texts | None = None,
    columns: Columns = (0, 1),
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    out: Name | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Go on from a trained model, with its own vocabulary and a gentler rate; reports as `train` does.

    A translator learns from other pairs, a language model from another text; a classifier is made from labels, or of
    other images. The method says what learns: "full", "lora", "prefix" or "head". All but the first save what they
    learnt by itself, and need `model` ever after.
    """
    start = find(model)
    if not at_most_one(pairs=pairs, text=text, labels=labels, images=images):
        raise ConfigError(
            "there is nothing to go on with",
            "give --pairs more.tsv, --text other.txt, --labels reviews.tsv or --images folder",
        )
    if method not in SAID:
        raise ConfigError(f"there is no method `{method}`", suggest(method, SAID))
    splits = (("train", pairs or text or labels or images), ("valid", valid), ("test", test))
    corpora: dict[str, Any] = {split: corpus for split, corpus in splits if corpus}
    if resume:
        refuse_with_resume(valid=valid, test=test)
        chosen = saved_recipe(out, settings)
    elif text is not None:
        chosen = plan_finetune_text(start, written(corpora), method, settings, device)
    elif labels is not None:
        sources = labelled(corpora, text_columns, label_column)
        chosen = plan_finetune_labels(start, sources, method, settings, device)
    elif images is not None:
        chosen = plan_finetune_images(start, pictured(corpora), method, settings, device)
    else:
        chosen = plan_finetune_pairs(start, sources_of(corpora, columns), method, settings, device)
    return run(
        chosen,
        Path(out) if out else default_folder(chosen, start.name),
        resume,
        device,
        None if chosen.tuning else start,
    )


def at_most_one(**corpora: object) -> list[str]:
    """The name of the data that is given, if any is."""
    given = [name for name, value in corpora.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(
            f"both {' and '.join(given)} are given",
            "train a translator on --pairs, a language model on --text, a classifier on --labels or --images",
        )
    return given


def refuse_with_resume(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"a training is resumed as it is: --{name} cannot be given anew", "give --resume and --out alone"
            )


def saved_recipe(out: Name | None, settings: Sequence[str]) -> Recipe:
    if out is None:
        raise ConfigError("--resume needs --out", "name the run folder to go on with")
    run = RunFolder(Path(out))
    run.require()
    return Recipe.read(run.recipe, settings)


def run(recipe: Recipe, folder: Path, resume: bool, device: str, start: Path | None = None) -> dict[str, Any]:
    if recipe.data is None:
        raise ConfigError(
            "there is nothing to train on: the recipe is that of an imported model, without [data]",
            "go on from it with data of yours: clearformer finetune --model FOLDER, with --pairs or --text",
        )
    if not resume:
        probe(recipe)
    report = launch.train(recipe, folder, resume, device, start)
    return {"run": str(folder), **report} if report else {}


def probe(recipe: Recipe) -> None:
    """Read a pair of each corpus now: a missing test set should not be found out after a day of training."""
    for split in ("train", "valid", "test"):
        if (source := recipe.data.source(split)) is not None:
            next(source.read())


def default_folder(recipe: Recipe, model: str | None = None) -> Path:
    """runs/<data>-<model>-<time>"""
    path = recipe.data.train.path
    data = (path[0] if isinstance(path, tuple) else path).resolve().name.split(".")[0]
    size = model or recipe.model.preset or recipe.model.kind
    return Path("runs") / f"{data}-{size}-{time.strftime('%Y%m%d-%H%M%S')}"
