"""Names to classes, imported when first asked for.

    MODELS: Table[type[nn.Module]] = Table("model", {"gpt": "clearformer.models.gpt:GPT", …})
    MODELS.resolve("gpt")                  the class
    register("model", "mine", Mine)        a class of the user's joins, from a plugin

Each room has the table of its own kind: models/, tasks/, objectives/, text/tokenizers/. An entry point in the group
`clearformer.<kind>` joins, too. A name found in a downloaded file is never imported.
"""

import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from clearformer.errors import ConfigError, suggest

T = TypeVar("T")

TABLES = {
    "model": "clearformer.models:MODELS",
    "objective": "clearformer.objectives:OBJECTIVES",
    "task": "clearformer.tasks:TASKS",
    "tokenizer": "clearformer.text.tokenizers:TOKENIZERS",
}
"""What can be registered, and where its table is."""


class Table(Generic[T]):
    """Things of one kind by name: shipped ones as "module:attribute", and added ones."""

    def __init__(self, kind: str, shipped: Mapping[str, str]) -> None:
        self.kind, self.shipped = kind, dict(shipped)
        self.added: dict[str, T] = {}

    def add(self, name: str, thing: T) -> T:
        """Add a thing under a new name; adding the same one twice is no conflict."""
        if name in self.shipped or self.added.get(name, thing) is not thing:
            raise ConfigError(f"there is already a {self.kind} called `{name}`", "choose another name")
        self.added[name] = thing
        return thing

    def names(self) -> list[str]:
        """Every name that `resolve` takes, sorted."""
        plugins = {point.name for point in entry_points(group=f"clearformer.{self.kind}")}
        return sorted({*self.shipped, *self.added, *plugins})

    def resolve(self, name: str) -> T:
        """The thing of this name, imported now if it was not before."""
        if name in self.added:
            return self.added[name]
        if name in self.shipped:
            return cast(T, load(self.shipped[name]))
        for point in entry_points(group=f"clearformer.{self.kind}", name=name):
            return cast(T, point.load())
        raise ConfigError(f"there is no {self.kind} called `{name}`", suggest(name, self.names()))


def register(kind: str, name: str, thing: Any) -> Any:
    """Add a class of the user's under a new name; returns it."""
    if kind not in TABLES:
        raise ConfigError(f"`{kind}` is no kind of thing that can be registered", suggest(kind, TABLES))
    table: Table[Any] = load(TABLES[kind])
    return table.add(name, thing)


def resolve(kind: str, name: str) -> Any:
    """The thing of this kind and name. Deprecated: the tables are typed, MODELS.resolve(name)."""
    warnings.warn(f"registry.resolve is deprecated: use {TABLES[kind]}", DeprecationWarning, stacklevel=2)
    return load(TABLES[kind]).resolve(name)


def names(kind: str) -> list[str]:
    """Every name of this kind. Deprecated: MODELS.names()."""
    warnings.warn(f"registry.names is deprecated: use {TABLES[kind]}", DeprecationWarning, stacklevel=2)
    every: list[str] = load(TABLES[kind]).names()
    return every


def load(where: str) -> Any:
    """What "module:attribute" names."""
    module, attribute = where.split(":")
    return getattr(import_module(module), attribute)
