"""A recipe: the TOML file that describes a run completely.

    [data]       data files, filters and splits                              the task's `data`
    [text]       tokenizer                                                   text/tokenizer.py
    [image]      image size, normalisation and augmentation                  data/pixels.py
    [sound]      audio features                                              data/sound.py
    [model]      architecture and sizes                                      models/<kind>.py
    [objective]  loss; its kind determines the task                          the task's `objective`
    [optim]      [schedule]  [train]                                         training/
    [decode]     search and sampling                                         generation/decode.py
    [evaluate]   metrics on validation and test data                         evaluation/evaluate.py
    [tuning]     base model and trainable weights of a fine-tuning run       tuning/methods.py
    [origin]     source of a model that was trained elsewhere                interop/origin.py

Each table is validated by one class, defined next to the code that it configures. The resolved recipe is saved with
the run; reading it back rebuilds the run.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from clearformer.config import Config
from clearformer.data.pixels import ImageConfig
from clearformer.data.sound import SoundConfig
from clearformer.errors import ConfigError, suggest
from clearformer.evaluation.evaluate import EvaluateConfig
from clearformer.generation.decode import DecodeConfig
from clearformer.interop.origin import Origin
from clearformer.models.build import model_task, parse_model
from clearformer.synonyms import tables_like
from clearformer.tables import Tables, override, read_toml
from clearformer.tasks import is_objective, objective_named, objective_names, task_named
from clearformer.text import TextConfig
from clearformer.training.config import TrainConfig
from clearformer.training.optim import OptimConfig
from clearformer.training.schedules import ScheduleConfig
from clearformer.tuning.methods import TuningConfig

SECTIONS: dict[str, type[Config]] = {
    "text": TextConfig,
    "optim": OptimConfig,
    "schedule": ScheduleConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
    "evaluate": EvaluateConfig,
}

OPTIONAL: dict[str, type[Config]] = {
    "image": ImageConfig,
    "sound": SoundConfig,
    "tuning": TuningConfig,
    "origin": Origin,
}


class Recipe(Tables):
    """The validated tables of a recipe."""

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """Read a TOML file. `overrides` have the form of --set, "table.key=value"."""
        table = read_toml(path, "a recipe has lines such as steps = 500")
        return cls.parse(override(table, overrides), f"{path} with --set" if overrides else str(path))

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        known = [field.name for field in fields(cls)]
        for section in table:
            if section not in known:
                raise ConfigError(f"{where}: unknown table [{section}]", suggest(section, known, tables_like(section)))
            if not isinstance(table[section], Mapping):
                raise ConfigError(
                    f"{where}: `{section}` is not a table", f"write the keys of `{section}` below a line [{section}]"
                )
        if "data" not in table and "origin" not in table:
            raise ConfigError(f"{where}: missing table [data]", 'add it, for example data.train.path = "pairs.tsv"')
        sections: dict[str, Any] = {
            name: schema.parse(table.get(name, {}), f"{where}: [{name}]") for name, schema in SECTIONS.items()
        }
        sections["model"] = parse_model(table.get("model", {}), f"{where}: [model]")
        sections["objective"] = parse_objective(table.get("objective", {}), sections["model"], f"{where}: [objective]")
        task = task_named(sections["objective"].kind)
        sections["data"] = task.data.parse(table["data"], f"{where}: [data]") if "data" in table else None
        for name, schema in OPTIONAL.items():
            if name in table:
                sections[name] = schema.parse(table[name], f"{where}: [{name}]")
        recipe = cls(**sections)
        task.check(recipe, where)
        return recipe


def parse_objective(table: Mapping[str, Any], model: Any, where: str) -> Any:
    """Parse the table [objective]. Its `kind` determines the task; by default, it is the task of the architecture.

    A classifier without pooling classifies every token.
    """
    table = dict(table)
    labels_words = model.kind == "classifier" and model.pooling == "none"
    kind = str(table.setdefault("kind", "token-classification" if labels_words else model_task(model.kind)))
    if not is_objective(kind):
        hint = f"{suggest(kind, objective_names())}; --plugin MODULE adds your own objectives"
        raise ConfigError(f"{where} there is no objective called `{kind}`", hint)
    return objective_named(kind).Config.parse(table, where)


MOVED = {
    **dict.fromkeys(("build_model", "model_config", "model_key", "presets"), "clearformer.models.build"),
    **dict.fromkeys(("override", "parse_setting"), "clearformer.tables"),
}


def __getattr__(name: str) -> Any:
    """Look up a name that was defined here in version 0.1. These names are kept for one version."""
    if name not in MOVED:
        raise AttributeError(f"module 'clearformer.recipe' has no attribute {name!r}")
    warnings.warn(f"clearformer.recipe.{name} has moved to {MOVED[name]}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(MOVED[name]), name)
