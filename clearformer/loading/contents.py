"""What lies in a model's folder, ours or Hugging Face's, in our words: recipe, weights, tokenizers, classes."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.checkpoint import RunFolder, load_tensors, read_facts
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.convert import first_token, import_any, read_model_config
from clearformer.interop.huggingface.folder import Reader, read_weights
from clearformer.interop.huggingface.pictures import class_names
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import read_image
from clearformer.loading.folders import find, is_foreign
from clearformer.models.pictures import PictureConfig
from clearformer.prepare import CLASSES, load_tokenizers
from clearformer.recipe import Recipe, task_of
from clearformer.text import Tokenizer

Parts = tuple[Recipe, dict[str, Tensor], list[Tokenizer]]


def read_recipe(model: str | Path) -> Recipe:
    """The recipe of a folder alone: no weights are read."""
    path = find(model)
    return recipe_of(path, read_model_config(path)) if is_foreign(path) else Recipe.read(RunFolder(path).recipe)


def read_run(run: RunFolder) -> Parts:
    """The best weights of a training, or an imported model."""
    recipe = Recipe.read(run.recipe)
    if not run.model.exists():
        raise CheckpointError(
            f"{run.path} has no trained weights yet: {run.model.name} appears at the first validation",
            f"wait for it, or go on with the training: clearformer train --resume --out {run.path}",
        )
    tokenizers = [] if is_seen(recipe) else list(load_tokenizers(run))[: 2 if is_pair(recipe) else 1]
    weights, facts = load_tensors(run.model)
    if facts.get("tokenizers", own := [tokenizer.fingerprint() for tokenizer in tokenizers]) != own:
        check_fit(tokenizers, recipe, run.path)
        raise CheckpointError(
            f"{run.path}: the tokenizer is not the one this model was trained with", "copy the whole run folder again"
        )
    return recipe, weights, tokenizers


def read_foreign(folder: Path, read: Reader = read_weights) -> Parts:
    """A Hugging Face folder in our words. A decoder's first token is its BOS here, whatever it is called there."""
    config, weights = import_any(folder, read)
    recipe = recipe_of(folder, config)
    if is_seen(recipe):
        return recipe, weights, []
    tokenizer = Tokenizer.from_folder(folder)
    if is_pair(recipe):
        tokenizer = tokenizer.begun_by(first_token(folder))
        return recipe, weights, [tokenizer, tokenizer]
    return recipe, weights, [tokenizer]


def recipe_of(folder: Path, config: Any) -> Recipe:
    """The recipe of a Hugging Face folder whose model has this configuration."""
    image = read_image(folder, config) if isinstance(config, PictureConfig) else None
    return foreign_recipe(config, Origin(source=folder.resolve().name), image)


def foreign_recipe(config: Any, origin: Origin, image: ImageConfig | None = None) -> Recipe:
    tables = {"origin": origin, "model": config} | ({} if image is None else {"image": image})
    return Recipe.parse({name: table.model_dump(exclude_none=True) for name, table in tables.items()}, origin.source)


def is_pair(recipe: Recipe) -> bool:
    """Two sides, a source and a target, rather than one text."""
    return task_of("model", recipe.model.kind) == "translation"


def is_seen(recipe: Recipe) -> bool:
    """Pictures, which have no tokenizer, rather than text."""
    return task_of("model", recipe.model.kind) in ("image-classification", "reconstruction")


def check_fit(tokenizers: list[Tokenizer], recipe: Recipe, where: Path) -> None:
    """Each side's table has a row for every entry; published tables may have some to spare, ours have not."""
    sides = ("source_vocab", "target_vocab") if is_pair(recipe) else ("vocab",)
    for key, tokenizer in zip(sides, tokenizers):
        size, n_rows = tokenizer.vocab_size, getattr(recipe.model, key)
        if size > n_rows or (size < n_rows and recipe.origin is None):
            side = f"{key.removesuffix('_vocab')} " if is_pair(recipe) else ""
            raise CheckpointError(
                f"{where}: the {side}tokenizer has {size:,} entries, the model {n_rows:,}",
                "tokenizer.json is not the one this model was trained with",
            )


def read_classes(folder: Path) -> list[str]:
    """classes.json, which must be that of the weights; an empty list is a regression's."""
    path = folder / CLASSES
    try:
        classes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", "copy the whole run folder again") from None
    if read_facts(folder / "model.safetensors").get("classes", classes) != classes:
        raise CheckpointError(f"{path} is not the one this model was trained with", "copy the whole run folder again")
    return [str(label) for label in classes]


def read_pictured(folder: Path, n_classes: int) -> list[str]:
    """What a network for pictures tells apart, by name."""
    classes = class_names(folder, n_classes) if is_foreign(folder) else read_classes(folder)
    if len(classes) != n_classes:
        raise CheckpointError(
            f"{folder} names {len(classes)} classes, and the model knows {n_classes}", "copy the whole run folder again"
        )
    return classes
