"""Which parameters learn.

    freeze(model, ["unembedding", "add_*.norm"])     these modules or parameters and no others, by the end of their name
    freeze(model, lambda name: name.endswith("bias"))
    head_only(model)                                 what turns hidden vectors into scores
    full(model)                                      everything

A frozen parameter has `requires_grad` off: it receives no gradient, and the optimisers leave it out.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn

from clearformer.errors import ConfigError, suggest

HEADS = ("unembedding", "classifier", "*head")  # what models here call the layer that gives their answer


def freeze(model: nn.Module, trainable: Callable[[str], bool] | Iterable[str]) -> list[str]:
    """Let only these parameters learn; returns their names.

    A tied parameter has several names and learns if any of them is chosen: a head that shares its table with the
    embedding trains the embedding too.
    """
    every = list(model.named_parameters(remove_duplicate=False))
    chosen = trainable if callable(trainable) else covering(trainable, [name for name, _ in every])
    learning = {id(p) for name, p in every if chosen(name)}
    for _, p in every:
        p.requires_grad_(id(p) in learning)
    return [name for name, p in model.named_parameters() if p.requires_grad]


def full(model: nn.Module) -> list[str]:
    return freeze(model, lambda name: True)


def head_only(model: nn.Module) -> list[str]:
    heads = head_names(model)
    return freeze(model, lambda name: name.split(".")[0] in heads)


def head_names(model: nn.Module) -> list[str]:
    """The children that give the model's answer. There must be one."""
    heads = [name for name, _ in model.named_children() if any(fnmatchcase(name, head) for head in HEADS)]
    if not heads:
        known = ", ".join(name for name, _ in model.named_children())
        raise ConfigError(
            f"no layer of the model is called a head; it has {known}", "name one: freeze(model, ['my_layer'])"
        )
    return heads


def covering(patterns: Iterable[str], names: list[str]) -> Callable[[str], bool]:
    """Whether a parameter, or a module around it, is meant by one of these patterns; each must mean something."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    around = {name: [".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 2)] for name in names}
    for pattern in patterns:
        if not any(matches(module, pattern) for modules in around.values() for module in modules):
            known = kinds(module for modules in around.values() for module in modules)
            raise ConfigError(f"the model has no parameter or module `{pattern}`", suggest(pattern, known))
    return lambda name: any(matches(module, pattern) for module in around[name] for pattern in patterns)


def matches(name: str, pattern: str) -> bool:
    """Whether `name` ends in `pattern`, whole words between the dots: `attn.q` means blocks.3.attn.q; * is anything."""
    return fnmatchcase(f".{name}", f"*.{pattern}")


def kinds(names: Iterable[str]) -> set[str]:
    """What names end in, once for all blocks: encoder.blocks.0.attn.q and decoder.blocks.1.attn.q are both attn.q."""
    return {re.sub(r".*\.\d+(\.|$)", "", name) for name in names} - {""}
