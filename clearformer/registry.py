"""Registries of classes by name, imported on first use.

    MODELS: Table[type[nn.Module]] = Table("model", {"gpt": "clearformer.models.gpt:GPT", …})
    MODELS.resolve("gpt")                  the class
    register("model", "mine", Mine)        adds a class, for example in a plugin

models/, tasks/, objectives/, text/tokenizers/ and training/loggers/ have one table each. Entry points in the group
`clearformer.<kind>` are added as well. Names are only looked up in these tables, so a name in a downloaded file cannot
import other code.
"""

import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from clearformer.errors import ConfigError, suggest

T = TypeVar("T")

TABLES = {
    "logger": "clearformer.training.loggers:LOGGERS",
    "model": "clearformer.models:MODELS",
    "objective": "clearformer.objectives:OBJECTIVES",
    "task": "clearformer.tasks:TASKS",
    "tokenizer": "clearformer.text.tokenizers:TOKENIZERS",
}
"""The kinds of classes that can be registered, and their tables."""


class Table(Generic[T]):
    """The classes of one kind, by name: `shipped` ones, given as "module:attribute", and `added` ones."""

    def __init__(self, kind: str, shipped: Mapping[str, str]) -> None:
        self.kind, self.shipped = kind, dict(shipped)
        self.added: dict[str, T] = {}

    def add(self, name: str, entry: T) -> T:
        """Add an entry under a new name. Adding the same entry twice is allowed."""
        if name in self.shipped or self.added.get(name, entry) is not entry:
            raise ConfigError(f"there is already a {self.kind} called `{name}`", "choose another name")
        self.added[name] = entry
        return entry

    def __contains__(self, name: str) -> bool:
        """Whether `resolve` accepts the name. Installed packages are only searched for a name from elsewhere."""
        return name in self.shipped or name in self.added or name in self.names()

    def names(self) -> list[str]:
        """Return all names that `resolve` accepts, sorted."""
        plugins = {point.name for point in entry_points(group=f"clearformer.{self.kind}")}
        return sorted({*self.shipped, *self.added, *plugins})

    def resolve(self, name: str) -> T:
        """Return the class with this name, imported on first use."""
        if name in self.added:
            return self.added[name]
        if name in self.shipped:
            return cast(T, load(self.shipped[name]))
        for point in entry_points(group=f"clearformer.{self.kind}", name=name):
            return cast(T, point.load())
        raise ConfigError(f"there is no {self.kind} called `{name}`", suggest(name, self.names()))


def register(kind: str, name: str, entry: Any) -> Any:
    """Register a class under a new name, and return the class."""
    if kind not in TABLES:
        raise ConfigError(f"cannot register a `{kind}`: unknown kind", suggest(kind, TABLES))
    table: Table[Any] = load(TABLES[kind])
    return table.add(name, entry)


def resolve(kind: str, name: str) -> Any:
    """Return the class of this kind and name. Deprecated: use a typed table, as in MODELS.resolve(name)."""
    warnings.warn(f"registry.resolve is deprecated: use {TABLES[kind]}", DeprecationWarning, stacklevel=2)
    return load(TABLES[kind]).resolve(name)


def names(kind: str) -> list[str]:
    """Return all names of this kind. Deprecated: use a typed table, as in MODELS.names()."""
    warnings.warn(f"registry.names is deprecated: use {TABLES[kind]}", DeprecationWarning, stacklevel=2)
    registered: list[str] = load(TABLES[kind]).names()
    return registered


def load(where: str) -> Any:
    """Import the object at "module:attribute"."""
    module, attribute = where.split(":")
    return getattr(import_module(module), attribute)
