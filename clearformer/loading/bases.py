"""A model on another: where its base lies, and what it takes from it, sizes and weights."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.checkpoint import fingerprint, load_weights, unique_names, weights_of
from clearformer.errors import CheckpointError
from clearformer.loading.folders import bundled, find
from clearformer.loading.opened import Opened
from clearformer.models import classifier as models
from clearformer.recipe import Recipe
from clearformer.tuning.methods import TuningConfig


def located(tuning: TuningConfig, run: Path) -> TuningConfig:
    """The same with the base where it is found: from the run folder, or else from where the command runs."""
    beside = run / str(tuning.base)
    return tuning.changed(base=str(beside.resolve())) if beside.exists() else tuning


def seen_from(run: Path, base: Path) -> str:
    """How a run names its base: by the way from itself, so that both can move together.

    A bundled model keeps its name, and what has no folder in common with the run its whole path.
    """
    base, run = base.resolve(), run.resolve()
    if base in (path.resolve() for path in bundled().values()):
        return base.name
    is_near = len(Path(os.path.commonpath([base, run])).parts) > 1
    return os.path.relpath(base, run) if is_near else str(base)


def shaped(recipe: Recipe, base: Opened, run: Path) -> Recipe:
    """The recipe with the sizes of the model that it goes on from, and the mark of that model's weights."""
    refuse_prefix(base)  # before any data is prepared
    if recipe.model.kind == "classifier":
        own = recipe.model.base.model_dump(exclude_unset=True) if "base" in recipe.model.model_fields_set else {}
        kept = {**reader_config(base).model_dump(exclude_unset=True), **own, "kind": reader_config(base).kind}
        recipe = recipe.with_model(base=kept)
    elif recipe.tuning is not None and recipe.model.kind == base.config.kind:
        own = recipe.model.model_dump(exclude_unset=True)
        kept = base.config.model_dump(exclude_unset=True, exclude={"preset", *heads_of(base.network)})
        recipe = recipe.with_model(**kept | own)
    if recipe.image is None:
        recipe = replace(recipe, image=base.recipe.image)
    if recipe.tuning is not None:
        mark = recipe.tuning.fingerprint or fingerprint(base.network)
        where = seen_from(run, find(str(located(recipe.tuning, run).base)))
        tuning = recipe.tuning.changed(fingerprint=mark, base=where)
        recipe = replace(recipe, tuning=tuning, origin=base.recipe.origin)
    return recipe


def refuse_prefix(base: Opened) -> None:
    if base.recipe.tuning is not None and base.recipe.tuning.method == "prefix":
        raise CheckpointError(
            f"{base.name} has a prefix, which cannot be built into weights",
            f"start from its base: {base.recipe.tuning.base}",
        )


def reader_config(base: Opened) -> Any:
    """Of the network that reads: a classifier's base, or the model itself."""
    return base.config.base if base.config.kind == "classifier" else base.config


def fill(network: nn.Module, base: Opened) -> None:
    """Give a network its base's weights. What it says with may be its own.

    A head that its base has not, or has for other classes, begins anew.
    """
    refuse_prefix(base)
    weights = weights_of(base.network)
    if isinstance(network, models.Classifier):
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
