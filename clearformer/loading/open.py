"""Load a model from a run folder or a Hugging Face folder. A partially fine-tuned model needs its base model too."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from clearformer.checkpoint import (
    RunFolder,
    fingerprint,
    load_tensors,
    load_weights,
    map_tensors,
    unique_names,
    weights_of,
)
from clearformer.errors import CheckpointError
from clearformer.handles.handle import Handle
from clearformer.interop.huggingface.folder import read_template
from clearformer.loading.folder import (
    DEFAULT,
    bundled,
    check_fit,
    find,
    is_foreign,
    read_class_names,
    read_foreign,
    read_run,
    read_temperature,
    task_of,
)
from clearformer.models.build import build_mapped, build_model, build_unfilled
from clearformer.models.build import check_fit as check_size
from clearformer.models.classifier import Classifier
from clearformer.recipe import Recipe
from clearformer.tasks.task import Pretrained
from clearformer.training.finite import are_finite
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import TuningConfig, for_inference, tune


def open_model(
    model: str | Path = DEFAULT, device: str = "cpu", opening: tuple[Path, ...] = (), is_mapped: bool = False
) -> Pretrained:
    """Load a model onto a device, with its tokenizers, from a folder or by the name of a bundled model.

    `opening` are the fine-tuned models whose base model it is, and which are being loaded. With `is_mapped`, weights
    stay in their file if they can: of a run folder that has all of them. They should only be read then.
    """
    path = find(model)
    if path.resolve() in opening:
        raise CheckpointError(
            f"{path} is its own base model",
            "set `base` under [tuning] in recipe.toml to the model it started from",
        )
    read = map_tensors if is_mapped else load_tensors
    recipe, weights, tokenizers = read_foreign(path) if is_foreign(path) else read_run(RunFolder(path), read)
    check_fit(tokenizers, recipe, path)
    where = str(path if is_foreign(path) else RunFolder(path).model)
    if recipe.tuning is None or not recipe.tuning.is_partial:
        require_finite(weights, where)
        if is_mapped:
            network = build_mapped(recipe.model, weights, where)
        else:
            network = build_unfilled(recipe.model, weights, where)
            load_weights(network, weights, where)
    else:  # the base model, and the weights trained on top of it
        tuning = located(recipe.tuning, path)
        recipe = recipe.with_tables(tuning=tuning)
        require_finite(weights, where)
        base = open_base(tuning, (*opening, path.resolve()))
        check_size(recipe.model, {**weights_of(base.network), **weights}, str(path))
        network = build_model(recipe.model)
        take_weights(network, base)
        load_weights(network, weights, where, tune(network, tuning))
        for_inference(network, tuning)
    network = network.to(pick_device(device))
    classes, temperature = read_class_names(path, recipe), read_temperature(path)
    return Pretrained(path.name, path, recipe, network, tokenizers, read_template(path), classes, temperature)


def require_finite(weights: Mapping[str, Tensor], where: str) -> None:
    """Raise an error if a weight is not a finite number: such a model would answer nothing, and say so nowhere."""
    numbers = {name: tensor for name, tensor in weights.items() if tensor.is_floating_point()}
    if not are_finite(numbers.values()):
        name = next(name for name, tensor in numbers.items() if not are_finite([tensor]))
        raise CheckpointError(
            f"{where}: `{name}` has values that are not finite numbers",
            "the training diverged, or the file is damaged; copy it again, or use another checkpoint",
        )


def open_base(tuning: TuningConfig, opening: tuple[Path, ...] = ()) -> Pretrained:
    """Open the base model of a fine-tuned model, and compare its weights with the recorded fingerprint, if any."""
    try:
        base = open_model(str(tuning.base), opening=opening, is_mapped=True)
    except CheckpointError as error:
        raise CheckpointError(
            f"the base model cannot be loaded: {error.message}",
            "restore it, or set `base` under [tuning] in recipe.toml to its new folder",
        ) from None
    if tuning.fingerprint is not None and fingerprint(base.network) != tuning.fingerprint:
        raise CheckpointError(
            f"{tuning.base} is not the base model of this run: its weights differ",
            "set `base` under [tuning] in recipe.toml to the model that the run started from",
        )
    return base


def located(tuning: TuningConfig, run: Path) -> TuningConfig:
    """Resolve the path of the base model in `tuning`, relative to the run folder or else to the current folder."""
    path = run / str(tuning.base)
    return tuning.changed(base=str(path.resolve())) if path.exists() else tuning


def relative_base(run: Path, base: Path) -> str:
    """Return the path of the base model to write into a recipe: relative, so that both folders can be moved together.

    A bundled model is given by name, and a base model without a common parent folder by its absolute path.
    """
    base, run = base.resolve(), run.resolve()
    if base in (path.resolve() for path in bundled().values()):
        return base.name
    has_common_parent = len(Path(os.path.commonpath([base, run])).parts) > 1
    return os.path.relpath(base, run) if has_common_parent else str(base)


def on_base(recipe: Recipe, base: Pretrained, run: Path) -> Recipe:
    """Complete the recipe of a fine-tuning run with the sizes and the fingerprint of its base model."""
    refuse_prefix(base)
    if recipe.model.kind == "classifier":
        explicit = recipe.model.base.model_dump(exclude_unset=True) if "base" in recipe.model.model_fields_set else {}
        config = reader_config(base)
        recipe = recipe.with_model(base={**config.model_dump(exclude_unset=True), **explicit, "kind": config.kind})
    elif recipe.tuning is not None and recipe.model.kind == base.config.kind:
        explicit = recipe.model.model_dump(exclude_unset=True)
        inherited = base.config.model_dump(exclude_unset=True, exclude={"preset", *heads_of(base.network)})
        recipe = recipe.with_model(**inherited | explicit)
    if recipe.image is None:
        recipe = recipe.with_tables(image=base.recipe.image)
    if recipe.sound is None:
        recipe = recipe.with_tables(sound=base.recipe.sound)
    if recipe.tuning is not None:
        base_fingerprint = recipe.tuning.fingerprint or fingerprint(base.network)
        base_path = relative_base(run, find(str(located(recipe.tuning, run).base)))
        new = (*recipe.tuning.new, *new_heads(recipe, base)) if recipe.tuning.is_partial else ()
        tuning = recipe.tuning.changed(fingerprint=base_fingerprint, base=base_path, new=tuple(dict.fromkeys(new)))
        recipe = recipe.with_tables(tuning=tuning, origin=base.recipe.origin)
    return recipe


def new_heads(recipe: Recipe, base: Pretrained) -> list[str]:
    """Return the modules that a classifier adds to the network of its base, such as the pooler of a BERT."""
    if recipe.model.kind != "classifier":
        return []
    network = getattr(base.network, "base", base.network)
    names = [name for name in heads_of(network) if getattr(network, name) is None]
    return [f"base.{name}" for name in names if getattr(recipe.model.base, name, False)]


def refuse_prefix(base: Pretrained) -> None:
    if base.recipe.tuning is not None and base.recipe.tuning.method == "prefix":
        raise CheckpointError(
            f"{base.name} was trained by prefix tuning and cannot be the base model of another run",
            f"start from its base model: --model {base.recipe.tuning.base}",
        )


def reader_config(base: Pretrained) -> Any:
    """Return the configuration of a model without its classification head, if it has one."""
    return base.config.base if base.config.kind == "classifier" else base.config


def take_weights(network: nn.Module, base: Pretrained) -> None:
    """Copy the weights of the base model. A head that it lacks, or has in another shape, keeps its initial weights."""
    taking(network, base)()


def taking(network: nn.Module, base: Pretrained) -> Callable[[], None]:
    """Return the function that copies the weights of the base model, also after the network was tuned or sharded."""
    refuse_prefix(base)
    weights = weights_of(base.network)
    if isinstance(network, Classifier):
        inside = {name.removeprefix("base."): tensor for name, tensor in weights.items() if name.startswith("base.")}
        known, heads = set(unique_names(network.base)), tuple(f"{name}." for name in heads_of(network.base))
        copied = {name: tensor for name, tensor in (inside or weights).items() if name in known}
        new = {name for name in known - copied.keys() if name.startswith(heads)}
        return partial(load_weights, network.base, copied, base.name, known - new)
    heads = tuple(f"{name}." for name in heads_of(network))
    theirs, ours = ({name: t.shape for name, t in side.items()} for side in (weights, weights_of(network)))
    new = {n for n in theirs.keys() | ours.keys() if n.startswith(heads) and theirs.get(n) != ours.get(n)}
    copied = {name: tensor for name, tensor in weights.items() if name not in new}
    return partial(load_weights, network, copied, base.name, ours.keys() - new)


def heads_of(network: nn.Module) -> tuple[str, ...]:
    """Return the names of the optional heads of a network."""
    return getattr(network, "heads", ())


def handle_of(pretrained: Pretrained) -> Handle:
    """Return the handle of an opened model."""
    handle = task_of(pretrained.recipe).handle(pretrained)
    handle.path = pretrained.path
    return handle
