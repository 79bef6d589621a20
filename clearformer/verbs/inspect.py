"""Show the layers of a model: shapes, parameters, multiplications. Nothing is allocated, whatever the size."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from clearformer.data.batch import batch_class
from clearformer.errors import ConfigError, suggest
from clearformer.lens.summary import summarize
from clearformer.loading.folder import bundled, read_recipe
from clearformer.models import MODELS
from clearformer.models.build import build_model, model_config, preset_name, presets

LENGTH = 32  # tokens on each side, where neither the call nor the model says


def inspect(name: str | Path, length: int | None = None) -> dict[str, Any]:
    """The layers of a run folder, bundled model, preset or model kind, and their totals, for one example.

    `length` is the number of tokens on each side, 32 by default. For images it is pixels per side, by default those of
    the model.
    """
    config = find_config(name)
    size = getattr(config, "size", None)
    if size is not None and length is not None:
        config.changed(size=length)  # refuses an image that is too small for the filters
    length = length or size or LENGTH
    with torch.device("meta"):
        model = build_model(config)
        batch = batch_class(model).blank(1, length, getattr(config, "channels", 3))
    layers = summarize(model.eval(), batch)
    return {
        "name": str(name),
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiplications": sum(layer.multiplications for layer in layers),
        "length": length,
        "layers": [asdict(layer) for layer in layers],
    }


def find_config(name: str | Path) -> Any:
    """The configuration of a model that is named by its folder, bundled name, preset or kind."""
    if Path(name).exists() or str(name) in bundled():
        return read_recipe(name).model
    known = [*presets(), *MODELS.names(), *bundled()]
    if preset_name(str(name)) not in known:
        raise ConfigError(f"there is no run folder, preset or model called `{name}`", suggest(str(name), known))
    return model_config(str(name))
