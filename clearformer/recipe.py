"""A recipe: one TOML file that says everything about a training, and nothing else does.

    [data]       where the files are, how they are filtered and split        the task's `data`
    [text]       how strings become ids                                      text/tokenizer.py
    [image]      how images become numbers                                   data/pixels.py
    [sound]      how recordings become frames                                data/sound.py
    [model]      which architecture, which sizes                             models/<kind>.py
    [objective]  what is predicted; its kind says which task it is           the task's `objective`
    [optim]      [schedule]  [train]                                         training/
    [decode]     how it is searched for                                      generation/decode.py
    [evaluate]   how it is scored                                            evaluation/evaluate.py
    [tuning]     what learns of a model that goes on from another            tuning/methods.py
    [origin]     where a model comes from that was not trained here          interop/origin.py

Each table maps to one class that lives beside the thing it configures. The resolved recipe is saved with the run, and
reading it back rebuilds the run.
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
from clearformer.tables import Tables, override, read_toml
from clearformer.tasks import objective_named, objective_names, task_named
from clearformer.text import TextConfig
from clearformer.training.loop import TrainConfig
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
    """The tables above, read and validated."""

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """From a TOML file; `overrides` are "table.key=value" as --set takes them."""
        table = read_toml(path, "a recipe has lines such as: steps = 500")
        return cls.parse(override(table, overrides), f"{path} with --set" if overrides else str(path))

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        known = [field.name for field in fields(cls)]
        for section in table:
            if section not in known:
                raise ConfigError(f"{where}: there is no table [{section}]", suggest(section, known))
            if not isinstance(table[section], Mapping):
                raise ConfigError(f"{where}: `{section}` is not a table", f"write its keys under [{section}]")
        if "data" not in table and "origin" not in table:
            raise ConfigError(f"{where}: the table [data] is missing", 'for example: data.train.path = "pairs.tsv"')
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
    """[objective]: its `kind` names the task, by default the one that the model is made for."""
    table = dict(table)
    kind = str(table.setdefault("kind", model_task(model.kind)))
    if kind not in objective_names():
        hint = f"{suggest(kind, objective_names())}; a class of your own is registered by --plugin MODULE"
        raise ConfigError(f"{where} there is no objective called `{kind}`", hint)
    return objective_named(kind).Config.parse(table, where)


MOVED = {
    **dict.fromkeys(("build_model", "model_config", "model_key", "presets"), "clearformer.models.build"),
    **dict.fromkeys(("override", "parse_setting"), "clearformer.tables"),
}


def __getattr__(name: str) -> Any:
    """Names that lived here in 0.1, for one version."""
    if name not in MOVED:
        raise AttributeError(f"module 'clearformer.recipe' has no attribute {name!r}")
    warnings.warn(f"clearformer.recipe.{name} has moved to {MOVED[name]}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(MOVED[name]), name)
