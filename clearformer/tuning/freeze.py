"""Choose which parameters are trained.

    freeze(model, ["unembedding", "add_*.norm"])     freeze everything except names that end with a pattern
    freeze(model, lambda name: name.endswith("bias"))    … except names for which the function returns True
    head_only(model)                                 train only the layers that turn hidden vectors into logits
    full(model)                                      train everything

A frozen parameter has `requires_grad=False`: it receives no gradient, and the optimisers skip it.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn

from clearformer.errors import ConfigError, suggest
from clearformer.wording import listed

HEADS = ("unembedding", "classifier", "*head")  # names of the output layers of our models


def freeze(model: nn.Module, trainable: Callable[[str], bool] | Iterable[str]) -> list[str]:
    """Train only the chosen parameters, freeze all others, and return the names of the trained parameters.

    A tied parameter has several names and is trained if any of them is chosen: training a head that is tied to the
    embedding trains the embedding too.
    """
    parameters = list(model.named_parameters(remove_duplicate=False))
    is_chosen = trainable if callable(trainable) else covering(trainable, [name for name, _ in parameters])
    trained_ids = {id(p) for name, p in parameters if is_chosen(name)}
    for _, p in parameters:
        p.requires_grad_(id(p) in trained_ids)
    return [name for name, p in model.named_parameters() if p.requires_grad]


def full(model: nn.Module) -> list[str]:
    return freeze(model, lambda name: True)


def head_only(model: nn.Module) -> list[str]:
    heads = head_names(model)
    return freeze(model, lambda name: name.split(".")[0] in heads)


def head_names(model: nn.Module) -> list[str]:
    """Return the names of the model's output layers. There must be at least one."""
    heads = [name for name, _ in model.named_children() if any(fnmatchcase(name, head) for head in HEADS)]
    if not heads:
        children = listed(name for name, _ in model.named_children()) or "none"
        raise ConfigError(
            f"the model has no head; its layers: {children}", "choose what to train: freeze(model, ['my_layer'])"
        )
    return heads


def covering(patterns: Iterable[str], names: list[str]) -> Callable[[str], bool]:
    """Return a predicate: whether a parameter, or a module around it, matches. Every pattern must match something."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    parents = {name: [".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 2)] for name in names}
    for pattern in patterns:
        if not any(matches(module, pattern) for modules in parents.values() for module in modules):
            known = short_names(module for modules in parents.values() for module in modules)
            raise ConfigError(f"the model has no parameter or module `{pattern}`", suggest(pattern, known))
    return lambda name: any(matches(module, pattern) for module in parents[name] for pattern in patterns)


def matches(name: str, pattern: str) -> bool:
    """Whether the last parts of a dotted name match a pattern: `attn.q` matches blocks.3.attn.q; * matches anything."""
    return fnmatchcase(f".{name}", f"*.{pattern}")


def short_names(names: Iterable[str]) -> set[str]:
    """Remove the block from each name: encoder.blocks.0.attn.q and decoder.blocks.1.attn.q both become attn.q."""
    return {re.sub(r".*\.\d+(\.|$)", "", name) for name in names} - {""}
