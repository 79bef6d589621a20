"""The folder of a model: which one a name means, and what lies in it, ours or Hugging Face's, in our format."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.checkpoint import CLASSES, RunFolder, load_tensors, read_facts
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError, suggest
from clearformer.interop.huggingface.class_names import class_names
from clearformer.interop.huggingface.convert import first_token, import_any, read_model_config
from clearformer.interop.huggingface.folder import Reader, read_weights
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import read_image
from clearformer.models.image_model import ImageModelConfig
from clearformer.recipe import Recipe
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.task import Task, load_tokenizers, vocab_keys
from clearformer.text import Tokenizer

HINT = "name the --out folder of a training, or a folder of Hugging Face's with a config.json"
DEFAULT = "en-fr-small"  # what `clearformer translate` uses without --model
Parts = tuple[Recipe, dict[str, Tensor], list[Tokenizer]]


def bundled() -> dict[str, Path]:
    """The models that ship inside the package, by name."""
    folder = Path(str(files("clearformer") / "bundled" / "models"))
    return {path.name: path for path in sorted(folder.iterdir())} if folder.exists() else {}


def find(model: str | Path) -> Path:
    """The folder that a name means: a run folder or one of Hugging Face's, or else a bundled model."""
    path = Path(model)
    if not path.exists():
        shipped = bundled()
        if str(model) not in shipped:
            raise CheckpointError(
                f"there is no model `{model}`", f"{HINT}; or {suggest(str(model), shipped)}" if shipped else HINT
            )
        path = shipped[str(model)]
    if path.is_file():
        raise CheckpointError(f"{path} is a file, not a folder", f"if it is a model: clearformer import {path} OUT")
    if not is_foreign(path) and not RunFolder(path).exists:
        raise CheckpointError(f"{path} is not a run folder: it has no recipe.toml", HINT)
    return path


def is_foreign(path: Path) -> bool:
    """A folder of Hugging Face's rather than ours."""
    return (path / "config.json").exists() and not RunFolder(path).exists


def read_recipe(model: str | Path) -> Recipe:
    """The recipe of a folder alone: no weights are read."""
    path = find(model)
    return recipe_of(path, read_model_config(path)) if is_foreign(path) else Recipe.read(RunFolder(path).recipe)


def task_of(recipe: Tables) -> type[Task]:
    """The task that a recipe is for."""
    return task_named(recipe.objective.kind)


def read_run(run: RunFolder) -> Parts:
    """The best weights of a training, or an imported model."""
    recipe = Recipe.read(run.recipe)
    if not run.model.exists():
        raise CheckpointError(
            f"{run.path} has no trained weights yet: {run.model.name} appears at the first validation",
            f"wait for it, or go on with the training: clearformer train --resume --out {run.path}",
        )
    tokenizers = load_tokenizers(run, task_of(recipe).n_tokenizers)
    weights, facts = load_tensors(run.model)
    fingerprints = [tokenizer.fingerprint() for tokenizer in tokenizers]
    if facts.get("tokenizers", fingerprints) != fingerprints:
        check_fit(tokenizers, recipe, run.path)
        raise CheckpointError(
            f"{run.path}: the tokenizer is not the one this model was trained with", "copy the whole run folder again"
        )
    return recipe, weights, tokenizers


def read_foreign(folder: Path, read: Reader = read_weights) -> Parts:
    """A Hugging Face folder in our words. A decoder's first token is its BOS here, whatever it is called there."""
    config, weights = import_any(folder, read)
    recipe = recipe_of(folder, config)
    n_tokenizers = task_of(recipe).n_tokenizers
    if n_tokenizers == 0:
        return recipe, weights, []
    tokenizer = Tokenizer.from_folder(folder)
    if n_tokenizers == 2:
        tokenizer = tokenizer.begun_by(first_token(folder))
    return recipe, weights, [tokenizer] * n_tokenizers


def recipe_of(folder: Path, config: Any) -> Recipe:
    """The recipe of a Hugging Face folder whose model has this configuration."""
    image = read_image(folder, config) if isinstance(config, ImageModelConfig) else None
    return foreign_recipe(config, Origin(source=folder.resolve().name), image)


def foreign_recipe(config: Any, origin: Origin, image: ImageConfig | None = None) -> Recipe:
    tables = {"origin": origin, "model": config} | ({} if image is None else {"image": image})
    return Recipe.parse({name: table.model_dump(exclude_none=True) for name, table in tables.items()}, origin.source)


def check_fit(tokenizers: list[Tokenizer], recipe: Recipe, where: Path) -> None:
    """Each side's table has a row for every entry; published tables may have some to spare, ours have not."""
    for key, tokenizer in zip(vocab_keys(len(tokenizers)), tokenizers):
        size, n_rows = tokenizer.vocab_size, getattr(recipe.model, key)
        if size > n_rows or (size < n_rows and recipe.origin is None):
            side = f"{key.removesuffix('_vocab')} " if len(tokenizers) > 1 else ""
            raise CheckpointError(
                f"{where}: the {side}tokenizer has {size:,} entries, the model {n_rows:,}",
                "tokenizer.json is not the one this model was trained with",
            )


def read_class_names(folder: Path, recipe: Recipe) -> list[str] | None:
    """What a classifier tells apart, in the order of its scores; None for what has no classes."""
    if is_foreign(folder):
        return class_names(folder, recipe.model.n_classes) if hasattr(recipe.model, "n_classes") else None
    if not (folder / CLASSES).exists() and not task_of(recipe).has_classes:
        return None
    classes = read_classes(folder)
    n_classes = getattr(recipe.model, "n_classes", None)
    if recipe.image is not None and n_classes is not None and len(classes) != n_classes:
        raise CheckpointError(
            f"{folder} names {len(classes)} classes, and the model knows {n_classes}", "copy the whole run folder again"
        )
    return classes


def read_classes(folder: Path) -> list[str]:
    """classes.json, which must be the one of the weights; a regression has an empty list."""
    path = folder / CLASSES
    try:
        classes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", "copy the whole run folder again") from None
    if read_facts(folder / "model.safetensors").get("classes", classes) != classes:
        raise CheckpointError(f"{path} is not the one this model was trained with", "copy the whole run folder again")
    return [str(label) for label in classes]
