"""Find the folder of a model (a run folder or a Hugging Face folder), and read its contents in our format."""

import os
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from math import inf, nan
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.checkpoint import CALIBRATION, CLASSES, RunFolder, load_tensors, read_class_file, read_facts
from clearformer.checksums import faults
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError, suggest
from clearformer.interop.huggingface.class_names import class_names
from clearformer.interop.huggingface.convert import first_token, import_any, read_model_config
from clearformer.interop.huggingface.folder import Reader, read_weights
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import read_image
from clearformer.interop.untrusted import untrusted
from clearformer.models.image_model import ImageModelConfig
from clearformer.recipe import Recipe
from clearformer.small_files import read_json
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.task import Task, load_tokenizers, vocab_keys
from clearformer.text import Tokenizer
from clearformer.wording import count

HINT = "give the --out folder of a run, or a Hugging Face folder with a config.json"
FILES = (".gguf", ".pth", ".pt", ".th", ".safetensors", ".bin")
DEFAULT = "en-fr-small"  # the model of `clearformer translate` without --model
LANGUAGE_MODEL = "en-small"  # the model of `generate`, `score`, `fill` and `repair` without --model
Parts = tuple[Recipe, dict[str, Tensor], list[Tokenizer]]


def bundled() -> dict[str, Path]:
    """Return the folders of the bundled models, by name."""
    folder = Path(str(files("clearformer") / "bundled" / "models"))
    return {path.name: path for path in sorted(folder.iterdir())} if folder.exists() else {}


def find(model: str | Path) -> Path:
    """Return the folder of a model, given by its path (run folder or Hugging Face folder) or by its bundled name."""
    path = Path(model)
    if not path.exists():
        models = bundled()
        if str(model) not in models:
            hint = f"{HINT}; or {suggest(str(model), models)}" if models else HINT
            if re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)+", str(model)):  # as bert-base-uncased, a name without its owner
                hint += f"; a model of Hugging Face has to be downloaded first: hf download {model} --local-dir {model}"
            raise CheckpointError(f"there is no model `{model}`", download_hint(model) or hint)
        path = models[str(model)]
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file, not a folder", f"import it first, if it is a model: clearformer import {path} OUT"
        )
    if not is_foreign(path) and not RunFolder(path).exists:
        raise CheckpointError(f"{path} is not a run folder: it has no recipe.toml", HINT)
    return path


def download_hint(model: str | Path) -> str | None:
    """Return a hint for a name of the Hugging Face hub, owner/name, that is not the path of a folder here."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)) or Path(model).parent.exists() or Path(model).suffix in FILES:
        return None
    name = Path(model).name
    return f"models are not downloaded; download it first, then give its folder: hf download {model} --local-dir {name}"


def is_foreign(path: Path) -> bool:
    """Whether `path` is a Hugging Face folder, not a run folder."""
    return (path / "config.json").exists() and not RunFolder(path).exists


def read_recipe(model: str | Path) -> Recipe:
    """Read the recipe of a model. No weights are read."""
    path = find(model)
    return recipe_of(path, read_model_config(path)) if is_foreign(path) else Recipe.read(RunFolder(path).recipe)


def task_of(recipe: Tables) -> type[Task]:
    """Return the task class for the objective of a recipe."""
    return task_named(recipe.objective.kind)


def read_run(run: RunFolder, read: Callable[[Path], tuple[dict[str, Tensor], Any]] = load_tensors) -> Parts:
    """Read the recipe, weights and tokenizers of a run folder: an imported model, or the best checkpoint of a run."""
    require_intact(run)
    recipe = Recipe.read(run.recipe)
    if not run.model.exists():
        raise CheckpointError(
            f"{run.path} has no trained weights yet: {run.model.name} is written at the first validation",
            f"wait for the first validation, or resume the run: clearformer train --resume --out {run.path}",
        )
    tokenizers = load_tokenizers(run, task_of(recipe).n_tokenizers)
    weights, facts = read(run.model)
    fingerprints = [tokenizer.fingerprint() for tokenizer in tokenizers]
    if facts.get("tokenizers", fingerprints) != fingerprints:
        check_fit(tokenizers, recipe, run.path)
        raise CheckpointError(
            f"{run.path}: the model was trained with another tokenizer", "copy the whole run folder again"
        )
    return recipe, weights, tokenizers


def require_intact(run: RunFolder, names: Sequence[str] = ()) -> None:
    """Raise an error if one of some files is not what was written; with `clearformer --verify`, of all files."""
    checked = None if os.environ.get("CLEARFORMER_VERIFY") else names
    if (checked is None or checked) and (problems := faults(run.path, checked)):
        more = f" (and {count(len(problems) - 1, 'other fault')})" if len(problems) > 1 else ""
        raise CheckpointError(
            problems[0] + more, f"copy the folder again; clearformer verify {run.path} lists all faults"
        )


def read_foreign(folder: Path, read: Reader = read_weights) -> Parts:
    """Read the recipe, weights and tokenizers of a Hugging Face folder. The start token of the decoder becomes BOS."""
    config, weights = import_any(folder, read)
    recipe = recipe_of(folder, config)
    n_tokenizers = task_of(recipe).n_tokenizers
    if n_tokenizers == 0:
        return recipe, weights, []
    tokenizer = Tokenizer.from_folder(folder)
    if config.kind == "classifier" and not tokenizer.adds_specials:
        raise CheckpointError(
            f"{folder}: its tokenizer adds no special tokens, but a classifier reads a text between BOS and EOS here",
            "add a post-processor with both to tokenizer.json, if the model was trained with them",
        )
    if n_tokenizers == 2:
        tokenizer = tokenizer.with_bos(first_token(folder))
    return recipe, weights, [tokenizer] * n_tokenizers


def recipe_of(folder: Path, config: Any) -> Recipe:
    """Build a recipe for a Hugging Face folder, given the configuration of its model."""
    with untrusted(folder):
        image = read_image(folder, config) if isinstance(config, ImageModelConfig) else None
    return foreign_recipe(config, Origin(source=folder.resolve().name), image)


def foreign_recipe(config: Any, origin: Origin, image: ImageConfig | None = None) -> Recipe:
    tables = {"origin": origin, "model": config} | ({} if image is None else {"image": image})
    return Recipe.parse({name: table.model_dump(exclude_none=True) for name, table in tables.items()}, origin.source)


def check_fit(tokenizers: list[Tokenizer], recipe: Recipe, where: Path) -> None:
    """Check that the embeddings have one row per token. Only imported models may have more rows than tokens."""
    for key, tokenizer in zip(vocab_keys(len(tokenizers)), tokenizers):
        size, n_rows = tokenizer.vocab_size, getattr(recipe.model, key, None)
        if n_rows is None:
            raise CheckpointError(
                f"{where}: a model of kind `{recipe.model.kind}` does not have the tokenizers of this objective",
                "copy the recipe.toml that the model was trained with",
            )
        if size > n_rows or (size < n_rows and recipe.origin is None):
            side = f"{key.removesuffix('_vocab')} " if len(tokenizers) > 1 else ""
            raise CheckpointError(
                f"{where}: the {side}tokenizer has {count(size, 'token')}, but the model expects {n_rows:,}",
                "copy the tokenizer.json that the model was trained with",
            )


def read_class_names(folder: Path, recipe: Recipe) -> list[str] | None:
    """Return the class names of a classifier, in the order of its logits, or None for a model without classes."""
    if is_foreign(folder):
        return foreign_classes(folder, recipe)
    if not (folder / CLASSES).exists() and not task_of(recipe).has_classes:
        return None
    classes = read_classes(folder)
    n_classes = getattr(recipe.model, "n_classes", None)
    if recipe.image is not None and n_classes is not None and len(classes) != n_classes:
        raise CheckpointError(
            f"{folder / CLASSES} lists {count(len(classes), 'class', 'classes')}, but the model has {n_classes}",
            "copy the whole run folder again",
        )
    return classes


def foreign_classes(folder: Path, recipe: Recipe) -> list[str] | None:
    """Return the class names in a Hugging Face folder: none for a text regression, None for a model without classes."""
    if not hasattr(recipe.model, "n_classes"):
        return None
    return [] if is_text_regression(recipe) else class_names(folder, recipe.model.n_classes)


def is_text_regression(recipe: Recipe) -> bool:
    """Whether an imported model predicts a value of a text: transformers' rule is that it has one output."""
    return bool(recipe.model.kind == "classifier" and recipe.model.n_classes == 1)


def read_classes(folder: Path) -> list[str]:
    """Read classes.json, which must match the weights. For a regression model, the list is empty."""
    path = folder / CLASSES
    classes = read_class_file(path)
    if read_facts(folder / "model.safetensors").get("classes", classes) != classes:
        raise CheckpointError(
            f"{path} does not match the weights: the model was trained with other classes",
            "copy the whole run folder again",
        )
    return [str(label) for label in classes]


def read_temperature(folder: Path) -> float:
    """Read the temperature that `evaluate --calibrate` saved in a run folder; 1 if the run is not calibrated."""
    path = folder / CALIBRATION
    if not path.exists():
        return 1.0
    try:
        temperature = float(read_json(path)["temperature"])
    except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        temperature = nan
    if not 0 < temperature < inf:
        raise CheckpointError(
            f"{path} has no temperature above 0", "remove the file, and repeat clearformer evaluate --calibrate"
        )
    return temperature
