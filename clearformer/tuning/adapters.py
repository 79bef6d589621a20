"""Add LoRA adapters to a model, switch between them, save and load them, and merge them into the weights.

    add_lora(model, LoraConfig(rank=8), "fr")      add an adapter and freeze everything else
    switch(model, "fr"); switch(model, None)       a model holds any number of adapters; at most one is active
    merge(model); unmerge(model)                   turn W into W + (α/R) B A; restore W, bit for bit
    load_lora(model, "fr", lora_weights(other))    copy the weights of one adapter, as a flat dictionary

Layers are replaced by name, without changes to the model's code. Parameters keep their names and stay tied.
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
from clearformer.layers.linear import is_plain_linear
from clearformer.tuning.freeze import freeze, matches, short_names
from clearformer.tuning.lora import LoraConfig, LoraLinear, MergedLinear, Pair
from clearformer.wording import listed


@dataclass(frozen=True)
class Place:
    """Rows `start` to `stop` of a layer, which a LoRA pair can adapt: ….attn.q is part q of the layer ….attn.qkv."""

    name: str
    layer: str
    part: str
    start: int
    stop: int


def places(model: nn.Module) -> dict[str, Place]:
    """Return all places that targets can name: each linear layer, and each matrix stacked in one, such as q in qkv."""
    by_name: dict[str, Place] = {}
    seen: set[int] = set()
    for path, parent in model.named_modules():
        for name, child in parent.named_children():
            if not is_adaptable(child) or id(child) in seen:
                continue
            seen.add(id(child))
            layer, start = f"{path}.{name}".lstrip("."), 0
            for part, n_rows in packed_rows(parent, name).items():
                place = f"{path}.{part}".lstrip(".")
                by_name[place] = Place(place, layer, part, start, start + n_rows)
                start += n_rows
            by_name[layer] = Place(layer, layer, "all", 0, child.out_features)
    return by_name


def is_adaptable(module: nn.Module) -> bool:
    """Whether this is a linear layer that computes exactly x W' + b, not a subclass with another `forward`."""
    return isinstance(module, LoraLinear) or is_plain_linear(module)


def packed_rows(parent: nn.Module, name: str) -> dict[str, int]:
    """Return the number of rows of each matrix stacked in the layer `parent.name`."""
    if isinstance(parent, MultiHeadAttention) and name == "qkv":
        return dict(zip("qkv", parent.rows))
    if isinstance(parent, GatedFeedForward) and name == "up":
        half = parent.up.out_features // 2
        return {"gate": half, "value": half}
    return {}


def add_lora(model: nn.Module, config: LoraConfig, name: str = "default") -> nn.Module:
    """Add a new adapter to every target, activate it, and freeze everything else."""
    refuse_merged(model)
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(f"`{name}` is not a valid adapter name", "use only letters, digits, _ and -")
    if name in adapters(model):
        raise ConfigError(f"the model already has an adapter `{name}`", "choose another name")
    chosen = targeted(model, config)
    layers = {place.layer: model.get_submodule(place.layer) for place in chosen}
    plain_layers = [layer for layer in layers.values() if not isinstance(layer, LoraLinear)]
    replace_modules(model, {layer: LoraLinear.of(layer) for layer in plain_layers})  # type: ignore[arg-type]
    for place in chosen:
        layer: Any = model.get_submodule(place.layer)
        layer.add(name, place.part, Pair(layer.weight, place.start, place.stop, config).train(layer.training))
    freeze(model, of_lora(name))
    return switch(model, name)


def targeted(model: nn.Module, config: LoraConfig) -> list[Place]:
    """Return the places that the targets match. Each target must match at least one place."""
    known = places(model)
    if not known:
        raise ConfigError(
            "the model has no linear layer to adapt",
            "a model packed for inference has none: add the adapter before packing, or use another method",
        )
    for target in config.targets:
        if not any(matches(place, target) for place in known):
            hint = f"{suggest(target, short_names(known))}; set tuning.lora.targets, or use --method full"
            raise ConfigError(f"the model has no layer `{target}` to adapt", hint)
    return [place for name, place in known.items() if any(matches(name, target) for target in config.targets)]


def of_lora(name: str) -> Callable[[str], bool]:
    """Return a predicate for `freeze` that selects the parameters of this adapter."""
    return lambda parameter: f"lora_{name}" in parameter.split(".")


def switch(model: nn.Module, name: str | None) -> nn.Module:
    """Activate the adapter `name`, or none. To change which parameters are trained, use `freeze`."""
    refuse_merged(model)
    if name is not None:
        require(model, name)
    for layer in adapted_layers(model):
        layer.active = name
    return model


def merge(model: nn.Module) -> nn.Module:
    """Merge the active adapter into the weights. The layers are plain again, as fast as before, and can be packed."""
    refuse_merged(model)
    layers = adapted_layers(model)
    if not any(layer.active for layer in layers):
        raise ConfigError("the model has no active adapter to merge", "activate one first: switch(model, name)")
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for p in module.parameters(recurse=False):
            owners.setdefault(id(p), []).append(name)
    for layer in layers:
        if layer.pairs(layer.active) and len(names := owners[id(layer.weight)]) > 1:
            raise ConfigError(
                f"{listed(names)} are tied, and merging would change the weight for each of them",
                "remove the layer from the targets, or use the adapter without merging it",
            )
    replace_modules(model, {layer: MergedLinear.of(layer) for layer in layers})
    return model


def unmerge(model: nn.Module) -> nn.Module:
    """Restore the adapted layers with their original tensors: nothing is subtracted, so nothing is rounded."""
    originals = {module: module.adapted for module in model.modules() if is_merged(module)}
    for merged, layer in originals.items():
        layer.train(merged.training)  # type: ignore[union-attr]
    replace_modules(model, originals)  # type: ignore[arg-type]
    return model


def lora_weights(model: nn.Module, name: str = "default") -> dict[str, Tensor]:
    """Return the weights of one adapter: encoder.blocks.0.attn.q.A, encoder.blocks.0.attn.q.B and so on."""
    require(model, name)
    pairs = pairs_of(model, name)
    return {f"{place}.{side}": getattr(pair, side).detach() for place, pair in pairs.items() for side in "AB"}


@torch.no_grad()
def load_lora(model: nn.Module, name: str, weights: Mapping[str, Tensor], where: str = "the adapter") -> nn.Module:
    """Copy the weights returned by `lora_weights` into an adapter that `add_lora` added."""
    adapter_weights = lora_weights(model, name)
    for problem, names in (
        ("lacks", set(adapter_weights) - set(weights)),
        ("has an unknown tensor", set(weights) - set(adapter_weights)),
    ):
        if names:
            raise CheckpointError(f"{where} {problem} `{min(names)}`", "call add_lora with the targets of this adapter")
    for key, tensor in weights.items():
        if tensor.shape != adapter_weights[key].shape:
            raise CheckpointError(
                f"{where} does not fit: `{key}` is {tuple(tensor.shape)}, not {tuple(adapter_weights[key].shape)}",
                "the adapter has a different rank, or belongs to another model",
            )
    for key, tensor in weights.items():
        adapter_weights[key].copy_(tensor)
    return model


def pairs_of(model: nn.Module, name: str) -> dict[str, Pair]:
    """Return the pairs of one adapter, by the names of the places that they adapt."""
    pairs = {}
    for place in places(model).values():
        layer = model.get_submodule(place.layer)
        if isinstance(layer, LoraLinear) and place.part in layer.pairs(name):
            pairs[place.name] = layer.pairs(name)[place.part]
    return pairs


def adapters(model: nn.Module) -> list[str]:
    """Return the names of all adapters, in the order in which they were added."""
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
        raise ConfigError("an adapter is merged into the weights of the model", "call unmerge(model) first")


def is_merged(module: nn.Module) -> bool:
    """Whether an adapter is merged into this layer. Packing keeps the attributes of a layer, so it does not matter."""
    return isinstance(vars(module).get("adapted"), LoraLinear)


def replace_modules(model: nn.Module, new: Mapping[nn.Module, nn.Module]) -> None:
    """Replace each key of `new` by its value, wherever the model uses it."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and child in new:
                setattr(parent, name, new[child])
