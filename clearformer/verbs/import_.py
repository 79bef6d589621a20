"""import: convert a Hugging Face folder, a .gguf file or torchvision weights to a run folder.

No other verb reads pickles, and this one reads nothing but tensors from them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.checkpoint import load_tensors, load_weights
from clearformer.errors import CheckpointError
from clearformer.interop import gguf
from clearformer.interop.huggingface.class_names import class_names
from clearformer.interop.huggingface.folder import read_template
from clearformer.interop.huggingface.pickled import read_any_weights, read_pickle
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import default_image
from clearformer.interop.torchvision import convert as torchvision
from clearformer.loading.folder import HINT, check_fit, foreign_recipe, is_foreign, read_foreign
from clearformer.loading.write import describe_run, require_empty, write_run
from clearformer.models.build import build_model
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer
from clearformer.wording import count

PICKLES = (".pth", ".pt", ".th")


def import_model(source: str | Path, out: str | Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """Import a model as a run folder, and return a dictionary with run, kind, parameters and format.

    `classes` are the class names of an image classifier, in the order of its logits. By default, the names come from
    the files of the model; if there are none, the classes are numbered.
    """
    source, out = Path(source), Path(out)
    if not source.exists():
        raise CheckpointError(
            f"there is no model {source}",
            "give the path of a Hugging Face folder, or of a .gguf, .pth or .safetensors file",
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
    network = build_model(recipe.model)
    load_weights(network, weights, str(source))
    write_run(out, recipe, weights, tokenizers, template, names)
    return describe_run(out, recipe, network) | {"format": recipe.origin.format if recipe.origin else None}


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
    config, weights = torchvision.import_weights(tensors, str(source))
    origin = Origin(source=source.name, format="torchvision")
    return foreign_recipe(config, origin, default_image(config)), weights, [], None


def name_classes(recipe: Recipe, source: Path, names: Sequence[str] | None) -> list[str] | None:
    """Return the class names of an image classifier: `names`, or the names in its files. None for other models."""
    n = None if recipe.image is None else recipe.model.n_classes
    if names is not None and len(names) != n:
        if n is None:
            raise CheckpointError(f"{source} is not an image classifier, so --classes does not apply", "omit --classes")
        raise CheckpointError(
            f"{source} has {count(n, 'class', 'classes')}, but --classes has {count(len(names), 'name')}",
            "give one name for each class",
        )
    if n is None:
        return None
    if names is not None:
        return [*names]
    return class_names(source, n) if source.is_dir() else [str(k) for k in range(n)]
