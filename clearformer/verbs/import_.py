"""Make a run folder from a Hugging Face folder, a .gguf file or torchvision weights.

No other verb reads a pickle, and this one takes nothing but tensors from it.
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
from clearformer.interop.pixels import usual_image
from clearformer.interop.torchvision import convert as torchvision
from clearformer.loading.folder import HINT, check_fit, foreign_recipe, is_foreign, read_foreign
from clearformer.loading.write import describe_run, require_empty, write_run
from clearformer.models.build import build_model
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer

PICKLES = (".pth", ".pt", ".th")


def import_model(source: str | Path, out: str | Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """Write the model as a run folder, and return run, kind, parameters, format.

    `classes` names the classes of an image classifier, in the order of its scores. The default is the names in the
    model's own files, or numbers if there are none.
    """
    source, out = Path(source), Path(out)
    if not source.exists():
        raise CheckpointError(f"there is no model {source}", "give a Hugging Face folder, a .gguf or a .pth file")
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
    """Recipe, weights, tokenizers and chat template of a single file. Its suffix says what it is."""
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
    return foreign_recipe(config, origin, usual_image(config)), weights, [], None


def name_classes(recipe: Recipe, source: Path, names: Sequence[str] | None) -> list[str] | None:
    """The class names of an image classifier: the given ones, or those in its files. None for any other model."""
    n = None if recipe.image is None else recipe.model.n_classes
    if names is not None and len(names) != n:
        known = "no classes to name" if n is None else f"{n} classes"
        raise CheckpointError(f"{source} has {known}, and {len(names)} names are given", "give one for each class")
    if n is None:
        return None
    own = class_names(source, n) if source.is_dir() else [str(k) for k in range(n)]
    return own if names is None else [*names]
