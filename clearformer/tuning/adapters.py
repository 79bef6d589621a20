"""The adapters of a model: where they can sit, and how they come, change places and go into the weights.

    add_lora(model, LoraConfig(rank=8), "fr")      freezes everything but the new pairs
    switch(model, "fr"); switch(model, None)       any number of adapters side by side, at most one computing
    merge(model); unmerge(model)                   plain layers with W + (α/R) B A; then W itself again, bit for bit
    load_lora(model, "fr", lora_weights(other))    an adapter by itself, as a flat dictionary

The model is changed from outside, layer by layer and by name; its own parameters keep their names and their ties.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.feedforward import GatedFeedForward
from clearformer.tuning.freeze import freeze, kinds, matches
from clearformer.tuning.lora import LoraConfig, LoraLinear, MergedLinear, Pair


@dataclass(frozen=True)
class Place:
    """Where a pair can sit: rows `start` to `stop` of a layer. encoder.blocks.0.attn.q is part q of ….attn.qkv."""

    name: str
    layer: str
    part: str
    start: int
    stop: int


def places(model: nn.Module) -> dict[str, Place]:
    """Every place by the name that targets are held against: each linear layer, and each part of a packed one."""
    found: dict[str, Place] = {}
    seen: set[int] = set()
    for path, parent in model.named_modules():
        for name, child in parent.named_children():
            if not is_adaptable(child) or id(child) in seen:
                continue
            seen.add(id(child))
            layer, start = f"{path}.{name}".lstrip("."), 0
            for part, n_rows in packed_rows(parent, name).items():
                at = f"{path}.{part}".lstrip(".")
                found[at] = Place(at, layer, part, start, start + n_rows)
                start += n_rows
            found[layer] = Place(layer, layer, "all", 0, child.out_features)
    return found


def is_adaptable(module: nn.Module) -> bool:
    """A linear layer that computes x W' + b and nothing else, whatever its class is called."""
    return isinstance(module, LoraLinear) or (
        isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    )


def packed_rows(parent: nn.Module, name: str) -> dict[str, int]:
    """The matrices that are stacked in the layer `parent.name`, and how many rows each has."""
    if isinstance(parent, MultiHeadAttention) and name == "qkv":
        return dict(zip("qkv", parent.rows))
    if isinstance(parent, GatedFeedForward) and name == "up":
        half = parent.up.out_features // 2
        return {"gate": half, "value": half}
    return {}


def add_lora(model: nn.Module, config: LoraConfig, name: str = "default") -> nn.Module:
    """Put a new adapter on every target, make it the active one, and let nothing else learn."""
    refuse_merged(model)
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(f"`{name}` cannot name an adapter", "use letters, digits, _ and - alone")
    if name in adapters(model):
        raise ConfigError(f"the model has an adapter `{name}` already", "give the new one another name")
    chosen = targeted(model, config)
    layers = {place.layer: model.get_submodule(place.layer) for place in chosen}
    put(model, {layer: LoraLinear.of(layer) for layer in layers.values() if not isinstance(layer, LoraLinear)})  # type: ignore[arg-type]
    for place in chosen:
        layer: Any = model.get_submodule(place.layer)
        layer.add(name, place.part, Pair(layer.weight, place.start, place.stop, config).train(layer.training))
    freeze(model, of_lora(name))
    return switch(model, name)


def targeted(model: nn.Module, config: LoraConfig) -> list[Place]:
    """The places that the targets mean. Each target must mean one."""
    known = places(model)
    if not known:
        raise ConfigError("the model has no linear layer to adapt", "a packed model has none any more: build it anew")
    for target in config.targets:
        if not any(matches(place, target) for place in known):
            hint = f"{suggest(target, kinds(known))}, by tuning.lora.targets; or tune all its weights: method full"
            raise ConfigError(f"the model has no layer `{target}` to adapt", hint)
    return [place for at, place in known.items() if any(matches(at, target) for target in config.targets)]


def of_lora(name: str) -> Callable[[str], bool]:
    """For `freeze`: the parameters of this adapter."""
    return lambda parameter: f"lora_{name}" in parameter.split(".")


def switch(model: nn.Module, name: str | None) -> nn.Module:
    """Compute with this adapter, or with none. What learns stays what it was: that is for `freeze` to say."""
    refuse_merged(model)
    if name is not None:
        require(model, name)
    for layer in adapted_layers(model):
        layer.active = name
    return model


def merge(model: nn.Module) -> nn.Module:
    """Add the active adapter to the weights: plain layers, as fast as before, saved and packed like any other."""
    refuse_merged(model)
    layers = adapted_layers(model)
    if not any(layer.active for layer in layers):
        raise ConfigError("there is no active adapter to merge", "switch to one first, or add one")
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for p in module.parameters(recurse=False):
            owners.setdefault(id(p), []).append(name)
    for layer in layers:
        if layer.pairs(layer.active) and len(names := owners[id(layer.weight)]) > 1:
            raise ConfigError(
                f"{' and '.join(names)} share one weight, and merging would change it for both",
                "leave it out of the targets, or use the adapter without merging",
            )
    put(model, {layer: MergedLinear.of(layer) for layer in layers})
    return model


def unmerge(model: nn.Module) -> nn.Module:
    """The adapted layers again, with the very weights that they had: nothing is subtracted, so nothing is rounded."""
    kept = {module: module.adapted for module in model.modules() if is_merged(module)}
    for merged, layer in kept.items():
        layer.train(merged.training)  # type: ignore[union-attr]
    put(model, kept)  # type: ignore[arg-type]
    return model


def lora_weights(model: nn.Module, name: str = "default") -> dict[str, Tensor]:
    """An adapter by itself: encoder.blocks.0.attn.q.A, encoder.blocks.0.attn.q.B and so on."""
    require(model, name)
    return {f"{at}.{side}": getattr(pair, side).detach() for at, pair in pairs_of(model, name).items() for side in "AB"}


@torch.no_grad()
def load_lora(model: nn.Module, name: str, weights: Mapping[str, Tensor], where: str = "the adapter") -> nn.Module:
    """Fill an adapter that was added before, as `lora_weights` gave it."""
    own = lora_weights(model, name)
    for problem, names in (("lacks", set(own) - set(weights)), ("has an unknown", set(weights) - set(own))):
        if names:
            raise CheckpointError(f"{where} {problem} `{min(names)}`", "add_lora with the targets it was trained with")
    for key, tensor in weights.items():
        if tensor.shape != own[key].shape:
            raise CheckpointError(
                f"{where} does not fit: `{key}` is {tuple(tensor.shape)}, not {tuple(own[key].shape)}",
                "it is of another rank, or of another model",
            )
    for key, tensor in weights.items():
        own[key].copy_(tensor)
    return model


def pairs_of(model: nn.Module, name: str) -> dict[str, Pair]:
    """The pairs of one adapter by place."""
    found = {}
    for at, place in places(model).items():
        layer = model.get_submodule(place.layer)
        if isinstance(layer, LoraLinear) and place.part in layer.pairs(name):
            found[at] = layer.pairs(name)[place.part]
    return found


def adapters(model: nn.Module) -> list[str]:
    """The names of all adapters, in the order in which they came."""
    children = [child for layer in adapted_layers(model) for child in layer._modules]
    return list(dict.fromkeys(child.removeprefix("lora_") for child in children))


def adapted_layers(model: nn.Module) -> list[LoraLinear]:
    return [module for module in model.modules() if isinstance(module, LoraLinear)]


def require(model: nn.Module, name: str) -> None:
    refuse_merged(model)
    known = adapters(model)
    if name not in known:
        hint = suggest(name, known) if known else "add one first: add_lora(model, LoraConfig(), name)"
        raise ConfigError(f"the model has no adapter `{name}`", hint)


def refuse_merged(model: nn.Module) -> None:
    if any(is_merged(module) for module in model.modules()):
        raise ConfigError("an adapter is merged into the model's weights", "unmerge(model) first")


def is_merged(module: nn.Module) -> bool:
    """Also after packing, which copies what a layer keeps."""
    return isinstance(vars(module).get("adapted"), LoraLinear)


def put(model: nn.Module, new: Mapping[nn.Module, nn.Module]) -> None:
    """Replace modules wherever they are used."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and child in new:
                setattr(parent, name, new[child])
