"""import: convert a Hugging Face folder, a .gguf file or torchvision weights to a run folder.

No other verb reads pickles, and this one reads nothing but tensors from them.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, device

from clearformer.checkpoint import CLASSES, RunFolder, load_tensors, load_weights, write_json
from clearformer.errors import CheckpointError, ConfigError
from clearformer.interop import gguf
from clearformer.interop.huggingface.folder import read_template
from clearformer.interop.huggingface.pickled import read_any_weights, read_pickle
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import default_image
from clearformer.interop.torchvision import convert as torchvision
from clearformer.interop.untrusted import untrusted
from clearformer.loading.folder import (
    HINT,
    check_fit,
    download_hint,
    foreign_classes,
    foreign_recipe,
    is_foreign,
    is_text_regression,
    read_foreign,
)
from clearformer.loading.open import require_finite
from clearformer.loading.write import describe_run, new_folder, require_empty, write_run
from clearformer.models.build import build_model, build_unfilled
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer
from clearformer.training.journal import console
from clearformer.wording import count

PICKLES = (".pth", ".pt", ".th")


def import_model(
    source: str | Path, out: str | Path | None = None, classes: Sequence[str] | None = None
) -> dict[str, Any]:
    """Import a model as a run folder, and return a dictionary with run, kind, parameters and format.

    `classes` are the class names of a classifier, in the order of its logits. By default, the names come from
    the files of the model; if there are none, the classes are numbered. To name the classes of an imported model later,
    give its run folder as `source`, and no `out`.
    """
    source = Path(source)
    if not source.exists():
        raise CheckpointError(
            f"there is no model {source}",
            download_hint(source) or "give the path of a Hugging Face folder, or of a .gguf, .pth or .safetensors file",
        )
    if out is None:
        return rename_classes(source, classes)
    out = Path(out)
    if classes is not None and is_import_of(source, out):
        raise CheckpointError(
            f"{out} already contains {source.name}",
            f"to name its classes: clearformer import {out} --classes NAMES",
        )
    require_empty(out)
    if source.is_file():
        recipe, weights, tokenizers, template = read_file(source)
    else:
        if not is_foreign(source):
            raise CheckpointError(f"{source} is not a Hugging Face folder: it has no config.json", HINT)
        recipe, weights, tokenizers = read_foreign(source, read_any_weights)
        template = read_template(source)
    check_fit(tokenizers, recipe, source)
    names = name_classes(recipe, source, classes)
    require_finite(weights, str(source))
    network = build_unfilled(recipe.model, weights, str(source))
    load_weights(network, weights, str(source))
    with new_folder(out) as draft:
        write_run(draft, recipe, weights, tokenizers, template, names)
    if names and all(re.fullmatch(r"(LABEL_)?\d+", name) for name in names):
        console.print(f"the classes have no names; to name them: clearformer import {out} --classes NAMES")
    return describe_run(out, recipe, network) | {"format": recipe.origin.format if recipe.origin else None}


def rename_classes(run: Path, classes: Sequence[str] | None) -> dict[str, Any]:
    """Name the classes of an imported classifier. Only classes.json is written."""
    if classes is None or not RunFolder(run).exists:
        raise ConfigError("OUT is missing", f"give the run folder to write: clearformer import {run} OUT")
    recipe = Recipe.read(RunFolder(run).recipe)
    if recipe.origin is None or recipe.data is not None:
        raise CheckpointError(
            f"{run} was trained here: its class names come from its training data", "rename them in the data"
        )
    names = name_classes(recipe, run, classes)
    with device("meta"):  # to count the parameters, without their values
        network = build_model(recipe.model)
    write_json(run / CLASSES, names)
    return describe_run(run, recipe, network) | {"format": recipe.origin.format}


def is_import_of(source: Path, out: Path) -> bool:
    """Whether a folder is a run folder that was imported from a model with this name."""
    if not RunFolder(out).exists:
        return False
    origin = Recipe.read(RunFolder(out).recipe).origin
    return origin is not None and origin.source == source.resolve().name


def read_file(source: Path) -> tuple[Recipe, dict[str, Tensor], list[Tokenizer], str | None]:
    """Read the recipe, weights, tokenizers and chat template from a single file, according to its file type."""
    if source.suffix == ".gguf":
        config, weights, tokenizer, template = gguf.import_file(source)
        return foreign_recipe(config, Origin(source=source.name, format="gguf")), weights, [tokenizer], template
    if source.suffix not in (*PICKLES, ".safetensors"):
        raise CheckpointError(
            f"{source}: unsupported file type", "give a .gguf, .pth or .safetensors file, or a Hugging Face folder"
        )
    tensors = read_pickle(source) if source.suffix in PICKLES else load_tensors(source)[0]
    with untrusted(source):
        config, weights = torchvision.import_weights(tensors, str(source))
        image = default_image(config)
    return foreign_recipe(config, Origin(source=source.name, format="torchvision"), image), weights, [], None


def name_classes(recipe: Recipe, source: Path, names: Sequence[str] | None) -> list[str] | None:
    """Return the class names of a classifier: `names`, or the names in its files. None for other models.

    A text regression has no classes.
    """
    n = 0 if is_text_regression(recipe) else getattr(recipe.model, "n_classes", 0)
    if names is not None and len(names) != n:
        if n == 0:
            raise CheckpointError(f"{source} is not a classifier, so --classes does not apply", "omit --classes")
        raise CheckpointError(
            f"{source} has {count(n, 'class', 'classes')}, but --classes has {count(len(names), 'name')}",
            "give one name for each class",
        )
    if names is not None:
        return [*names]
    if source.is_dir():
        return foreign_classes(source, recipe)
    return [str(k) for k in range(n)] if hasattr(recipe.model, "n_classes") else None
