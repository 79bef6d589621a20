"""Open a model: a run folder, or one of Hugging Face's; if it was tuned in part, its base and what was learnt on it."""

import os
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.checkpoint import RunFolder, fingerprint, load_weights, unique_names, weights_of
from clearformer.errors import CheckpointError
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
)
from clearformer.models.build import build_model
from clearformer.models.classifier import Classifier
from clearformer.recipe import Recipe
from clearformer.tasks.task import Pretrained
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import TuningConfig, settle, tune


def open_model(model: str | Path = DEFAULT, device: str = "cpu") -> Pretrained:
    """The weights of a folder in their network, on the device, with tokenizers that fit. Weights are read once."""
    path = find(model)
    recipe, weights, tokenizers = read_foreign(path) if is_foreign(path) else read_run(RunFolder(path))
    check_fit(tokenizers, recipe, path)
    network = build_model(recipe.model)
    where = str(path if is_foreign(path) else RunFolder(path).model)
    if recipe.tuning is None or not recipe.tuning.is_partial:
        load_weights(network, weights, where)
    else:  # the base, and what was learnt on it
        tuning = located(recipe.tuning, path)
        recipe = recipe.with_tables(tuning=tuning)
        take_weights(network, open_base(tuning))
        load_weights(network, weights, where, tune(network, tuning))
        settle(network, tuning)
    network = network.to(pick_device(device))
    return Pretrained(path.name, path, recipe, network, tokenizers, read_template(path), read_class_names(path, recipe))


def open_base(tuning: TuningConfig) -> Pretrained:
    """The model that another went on from: the very one, where that is remembered."""
    try:
        base = open_model(str(tuning.base))
    except CheckpointError as error:
        raise CheckpointError(
            f"the model that this one builds on cannot be opened: {error.message}",
            "put it back, or say where it lies now with `base` under [tuning] of recipe.toml",
        ) from None
    if tuning.fingerprint is not None and fingerprint(base.network) != tuning.fingerprint:
        raise CheckpointError(
            f"{tuning.base} is not the model that this one builds on: its weights are others",
            "name the base that it was trained on with `base` under [tuning] of recipe.toml",
        )
    return base


def located(tuning: TuningConfig, run: Path) -> TuningConfig:
    """The same with the base where it is found: from the run folder, or else from where the command runs."""
    beside = run / str(tuning.base)
    return tuning.changed(base=str(beside.resolve())) if beside.exists() else tuning


def relative_base(run: Path, base: Path) -> str:
    """How a run names its base: by a relative path, so that both can move together.

    A bundled model keeps its name, and what has no folder in common with the run its whole path.
    """
    base, run = base.resolve(), run.resolve()
    if base in (path.resolve() for path in bundled().values()):
        return base.name
    is_near = len(Path(os.path.commonpath([base, run])).parts) > 1
    return os.path.relpath(base, run) if is_near else str(base)


def on_base(recipe: Recipe, base: Pretrained, run: Path) -> Recipe:
    """The recipe with the sizes of the model that it goes on from, and the fingerprint of that model's weights."""
    refuse_prefix(base)
    if recipe.model.kind == "classifier":
        own = recipe.model.base.model_dump(exclude_unset=True) if "base" in recipe.model.model_fields_set else {}
        kept = {**reader_config(base).model_dump(exclude_unset=True), **own, "kind": reader_config(base).kind}
        recipe = recipe.with_model(base=kept)
    elif recipe.tuning is not None and recipe.model.kind == base.config.kind:
        own = recipe.model.model_dump(exclude_unset=True)
        kept = base.config.model_dump(exclude_unset=True, exclude={"preset", *heads_of(base.network)})
        recipe = recipe.with_model(**kept | own)
    if recipe.image is None:
        recipe = recipe.with_tables(image=base.recipe.image)
    if recipe.sound is None:
        recipe = recipe.with_tables(sound=base.recipe.sound)
    if recipe.tuning is not None:
        mark = recipe.tuning.fingerprint or fingerprint(base.network)
        where = relative_base(run, find(str(located(recipe.tuning, run).base)))
        tuning = recipe.tuning.changed(fingerprint=mark, base=where)
        recipe = recipe.with_tables(tuning=tuning, origin=base.recipe.origin)
    return recipe


def refuse_prefix(base: Pretrained) -> None:
    if base.recipe.tuning is not None and base.recipe.tuning.method == "prefix":
        raise CheckpointError(
            f"{base.name} has a prefix, which cannot be built into weights",
            f"start from its base: {base.recipe.tuning.base}",
        )


def reader_config(base: Pretrained) -> Any:
    """Of the network that reads: a classifier's base, or the model itself."""
    return base.config.base if base.config.kind == "classifier" else base.config


def take_weights(network: nn.Module, base: Pretrained) -> None:
    """Give a network its base's weights. A head that the base lacks, or has for other classes, stays fresh."""
    refuse_prefix(base)
    weights = weights_of(base.network)
    if isinstance(network, Classifier):
        inside = {name.removeprefix("base."): tensor for name, tensor in weights.items() if name.startswith("base.")}
        known = set(unique_names(network.base))
        own = {name: tensor for name, tensor in (inside or weights).items() if name in known}
        load_weights(network.base, own, base.name)
    else:
        heads = tuple(f"{name}." for name in heads_of(network))
        theirs, ours = ({name: t.shape for name, t in side.items()} for side in (weights, weights_of(network)))
        new = {n for n in theirs.keys() | ours.keys() if n.startswith(heads) and theirs.get(n) != ours.get(n)}
        own = {name: tensor for name, tensor in weights.items() if name not in new}
        load_weights(network, own, base.name, ours.keys() - new)


def heads_of(network: nn.Module) -> tuple[str, ...]:
    """Children that give an answer, of which a model may have some and lack others."""
    return getattr(network, "heads", ())
