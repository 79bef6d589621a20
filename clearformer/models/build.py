"""Presets and architectures by name, and the networks that are built from their configurations.

model_config("transformer-base")       a preset from models/presets/*.toml
model_config("resnet")                 an architecture with its default sizes; presets take precedence
build_model(config)                    the network, with newly initialised weights
build_unfilled(config, weights, …)     the network for weights that are loaded next
build_mapped(config, weights, …)       the network whose parameters are weights that stay in their file
build_deferred(config)                 the network without memory, and what gives it its weights block by block
"""

import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.checkpoint import map_weights
from clearformer.errors import CheckpointError, ConfigError, MachineError, suggest
from clearformer.layers.init import Undrawn
from clearformer.memory import machine_bytes
from clearformer.models import MODELS
from clearformer.models.deferred import Deferred
from clearformer.models.sizes import FACTOR, ROOM, at_most, check_sizes
from clearformer.wording import count


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Return all presets by name, from models/presets/*.toml."""
    tables: dict[str, dict[str, Any]] = {}
    for file in sorted(files("clearformer.models").joinpath("presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            tables |= tomllib.loads(file.read_text(encoding="utf-8"))
    return tables


def preset_name(name: str) -> str:
    """Return the preset whose name differs from `name` only in hyphens and case, or `name` if there is none.

    For example, ViT-B16 becomes vit-b-16.
    """
    matches = [name] if name in presets() else [preset for preset in presets() if letters(preset) == letters(name)]
    return matches[0] if len(matches) == 1 else name


def letters(name: str) -> str:
    """Return the name in lower case, without hyphens."""
    return name.replace("-", "").lower()


def with_preset(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Complete a [model] table with the settings of its preset, and correct the spelling of the preset's name."""
    name = preset_name(str(table["preset"]))
    if name not in presets():
        raise ConfigError(f"{where}: unknown preset `{name}`", suggest(name, presets()))
    return {**presets()[name], **table, "preset": name}


def model_key(name: str) -> str:
    """Return the key of [model] for a name: `kind` if it names an architecture, built-in or registered, else `preset`.

    Presets take precedence: `gpt` means the preset of the first GPT, of 2018, not the architecture.
    """
    return "kind" if name in MODELS and name not in presets() else "preset"


def parse_model(table: Mapping[str, Any], where: str) -> Any:
    """Parse a [model] table into a configuration. `kind` selects the architecture; `preset` supplies settings."""
    table = dict(table)
    if table.get("preset"):
        table = with_preset(table, where)
    if isinstance(base := table.get("base"), Mapping) and base.get("preset"):  # a classifier around another model
        table["base"] = with_preset(base, f"{where} base")
    kind = str(table.setdefault("kind", "transformer"))
    if kind not in MODELS:
        hint = f"{suggest(kind, MODELS.names())}; to use an architecture of your own, add --plugin MODULE"
        raise ConfigError(f"{where}: unknown architecture `{kind}`", hint)
    return model_class(kind).Config.parse(table, where)


def model_config(name: str) -> Any:
    """Return the configuration of a preset or an architecture."""
    return parse_model({model_key(name): name}, "[model]")


def model_class(kind: str) -> Any:
    """Return the class of an architecture. Registered classes may lack class attributes that built-in classes have."""
    return MODELS.resolve(kind)


def model_task(kind: str) -> str:
    """Return the task of an architecture: its class attribute `task`, or translation if it has none."""
    return str(getattr(model_class(kind), "task", "translation"))


def build_model(config: Any) -> nn.Module:
    """Build the network of a configuration, with newly initialised weights."""
    check_sizes(config)
    model: nn.Module = model_class(config.kind)(config)
    return model


def build_deferred(config: Any) -> tuple[nn.Module, Deferred]:
    """Build the network without memory for its parameters, which `fill` draws as `build_model` does.

    A registered network that looks at its own values while it is built gets them at once.
    """
    before = torch.default_generator.get_state()
    try:
        with Deferred() as later:
            return build_model(config), later
    except RuntimeError:
        torch.default_generator.set_state(before)
        return build_model(config), Deferred()


def build_unfilled(config: Any, weights: Mapping[str, Tensor], where: str) -> nn.Module:
    """Build the network for `weights` without drawing its parameters: `load_weights` checks that all are loaded.

    A configuration that asks for a much larger network than the weights are for is an error, found before the network
    takes memory.
    """
    with Undrawn(), about_as_large_as(weights, where):
        return build_model(config)


def build_mapped(config: Any, weights: Mapping[str, Tensor], where: str) -> nn.Module:
    """Build the network around `weights`, which become its parameters: it takes no memory beside them."""
    with Undrawn(), about_as_large_as(weights, where):
        model, later = build_deferred(config)
    map_weights(model, weights, where)
    later.fill(model, model)
    return model


def check_fit(config: Any, weights: Mapping[str, Tensor], where: str) -> None:
    """Raise the same error without building the network in memory."""
    with about_as_large_as(weights, where):
        outline(config)


def about_as_large_as(weights: Mapping[str, Tensor], where: str) -> AbstractContextManager[None]:
    """Return a context in which no network is built that is much larger than some weights."""
    n = sum(tensor.numel() for tensor in weights.values())
    error = CheckpointError(
        f"{where} does not fit the model: it contains {count(n, 'number')}, and the configuration asks for far more",
        "recipe.toml or config.json comes from another model, or is damaged; copy the whole folder again",
    )
    return at_most(FACTOR * n + ROOM, error)


def require_memory(config: Any, n_parts: int = 1) -> None:
    """Raise an error if one of n parts of the weights of a network alone is larger than the memory of this machine."""
    n_bytes = machine_bytes()
    error = MachineError(
        f"the weights of the model need more than the {n_bytes / 2**30:.3g} GiB of memory of this machine",
        "choose smaller sizes in [model]; clearformer inspect counts the parameters of a model",
    )
    with at_most(n_parts * n_bytes // 4, error):
        outline(config)


def outline(config: Any) -> nn.Module:
    """Build the network on torch's meta device, with shapes but no values."""
    with torch.device("meta"):
        return build_model(config)
