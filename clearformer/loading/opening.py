"""Open a model: a run folder, or one of Hugging Face's; if it was tuned in part, its base and what was learnt on it."""

from dataclasses import replace
from pathlib import Path

from clearformer.checkpoint import RunFolder, fingerprint, load_weights
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_template
from clearformer.loading.bases import fill, located
from clearformer.loading.contents import check_fit, read_foreign, read_run
from clearformer.loading.folders import DEFAULT, find, is_foreign
from clearformer.loading.opened import Opened
from clearformer.recipe import build_model
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import TuningConfig, settle, tune


def open_model(model: str | Path = DEFAULT, device: str = "cpu") -> Opened:
    """The weights of a folder in their network, on the device, with tokenizers that fit."""
    path = find(model)
    recipe, weights, tokenizers = read_foreign(path) if is_foreign(path) else read_run(RunFolder(path))
    check_fit(tokenizers, recipe, path)
    network = build_model(recipe.model)
    where = str(path if is_foreign(path) else RunFolder(path).model)
    if recipe.tuning is None or not recipe.tuning.is_partial:
        load_weights(network, weights, where)
    else:  # the base, and what was learnt on it
        tuning = located(recipe.tuning, path)
        recipe = replace(recipe, tuning=tuning)
        fill(network, open_base(tuning))
        load_weights(network, weights, where, tune(network, tuning))
        settle(network, tuning)
    return Opened(path.name, recipe, network.to(pick_device(device)), tokenizers, read_template(path))


def open_base(tuning: TuningConfig) -> Opened:
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
