"""Models by name: presets, the kinds of models, and the networks that their configurations describe.

model_config("transformer-base")       a preset from models/presets/*.toml
model_config("gpt")                    a preset or else a kind, with the sizes of its defaults
build_model(config)                    the network, with fresh weights
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from clearformer.errors import ConfigError, suggest
from clearformer.models import MODELS


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Every preset by name, from models/presets/*.toml."""
    tables: dict[str, dict[str, Any]] = {}
    for file in sorted(files("clearformer.models").joinpath("presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            tables |= tomllib.loads(file.read_text(encoding="utf-8"))
    return tables


def preset_name(name: str) -> str:
    """The preset that a name means, vit-b-16 for ViT-B16: one that differs in hyphens and case alone. Else the name."""
    matches = [name] if name in presets() else [known for known in presets() if letters(known) == letters(name)]
    return matches[0] if len(matches) == 1 else name


def letters(name: str) -> str:
    """All that two names of one preset have in common."""
    return name.replace("-", "").lower()


def with_preset(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A model's table with the sizes of its preset, which yield to its own keys, and the preset's proper name."""
    name = preset_name(str(table["preset"]))
    if name not in presets():
        raise ConfigError(f"{where} there is no preset called `{name}`", suggest(name, presets()))
    return {**presets()[name], **table, "preset": name}


def model_key(name: str) -> str:
    """The key of [model] that a name is for: `preset`, or else `kind`, such as a class of the user's.

    A preset comes first: `gpt` is the first GPT, of 2018, before it is the kind of them all.
    """
    return "kind" if name in MODELS.names() and name not in presets() else "preset"


def parse_model(table: Mapping[str, Any], where: str) -> Any:
    """[model]: its `kind` names the class that configures it, and it may start from a preset."""
    table = dict(table)
    if table.get("preset"):
        table = with_preset(table, where)
    if isinstance(base := table.get("base"), Mapping) and base.get("preset"):  # a model around another
        table["base"] = with_preset(base, f"{where} base")
    kind = str(table.setdefault("kind", "transformer"))
    if kind not in MODELS.names():
        hint = f"{suggest(kind, MODELS.names())}; a class of your own is registered by --plugin MODULE"
        raise ConfigError(f"{where} there is no model called `{kind}`", hint)
    return model_class(kind).Config.parse(table, where)


def model_config(name: str) -> Any:
    """The configuration behind a preset's or a model kind's name."""
    return parse_model({model_key(name): name}, "[model]")


def model_class(kind: str) -> Any:
    """The class of a kind of models; a class of the user's may leave out what ours say of themselves."""
    return MODELS.resolve(kind)


def model_task(kind: str) -> str:
    """The task that a kind of models is made for. A class of the user's that does not say is for translation."""
    return str(getattr(model_class(kind), "task", "translation"))


def build_model(config: Any) -> nn.Module:
    """The network that a configuration describes."""
    model: nn.Module = model_class(config.kind)(config)
    return model


def outline(config: Any) -> nn.Module:
    """The network on torch's meta device: shapes without numbers."""
    with torch.device("meta"):
        return build_model(config)
