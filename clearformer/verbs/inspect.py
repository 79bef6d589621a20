"""inspect: list the layers of a model, with shapes, parameters and multiply-adds.

No memory is allocated for tensors, not even for GPT-3.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from clearformer.data.batch import batch_class
from clearformer.errors import ConfigError, suggest
from clearformer.lens.summary import summarize
from clearformer.loading.folder import bundled, download_hint, find, read_recipe, read_temperature
from clearformer.models import MODELS
from clearformer.models.build import build_model, model_config, preset_name, presets

LENGTH = 32  # tokens per text, if neither the call nor the model sets a size


def inspect(name: str | Path, length: int | None = None) -> dict[str, Any]:
    """Return the layers of a run folder, bundled model, preset or architecture, with parameters and multiply-adds.

    Multiply-adds are counted for one example. `length` is its number of tokens, by default 32; for an image it is the
    number of pixels per side, by default the image size of the model. The key `temperature` is only there for a
    calibrated classifier. The key `multiplications` is a deprecated alias of `multiply_adds`.
    """
    config = find_config(name)
    size = getattr(config, "size", None)
    if size is not None and length is not None:
        config.changed(size=length)  # raises if the image is too small for the filters
    length = length or size or LENGTH
    with torch.device("meta"):
        model = build_model(config)
        batch = batch_class(model).blank(1, length, getattr(config, "channels", 3))
    layers = summarize(model.eval(), batch)
    temperature = read_temperature(find(name)) if is_folder(name) else 1.0
    return {
        "name": str(name),
        **({} if temperature == 1 else {"temperature": temperature}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiply_adds": (multiply_adds := sum(layer.multiply_adds for layer in layers)),
        "multiplications": multiply_adds,
        "length": length,
        "layers": [{**asdict(layer), "multiplications": layer.multiply_adds} for layer in layers],
    }


def is_folder(name: str | Path) -> bool:
    return Path(name).exists() or str(name) in bundled()


def find_config(name: str | Path) -> Any:
    """Find the configuration of a run folder, bundled model, preset or architecture."""
    if is_folder(name):
        return read_recipe(name).model
    known = [*presets(), *MODELS.names(), *bundled()]
    if preset_name(str(name)) not in known:
        raise ConfigError(
            f"there is no run folder, bundled model, preset or architecture `{name}`",
            download_hint(name) or suggest(str(name), known),
        )
    return model_config(str(name))
