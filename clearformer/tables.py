"""The validated tables of a recipe, and the settings that override them.

Tables        the recipe that tasks and the trainer use; recipe.py reads it from TOML
override      apply settings in the form of --set, such as "train.steps=500"
read_toml     read a TOML file into plain dictionaries
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import tomli_w

from clearformer.data.pixels import ImageConfig
from clearformer.data.sound import SoundConfig
from clearformer.errors import ConfigError
from clearformer.evaluation.evaluate import EvaluateConfig
from clearformer.generation.decode import DecodeConfig
from clearformer.interop.origin import Origin
from clearformer.models.build import preset_name, presets
from clearformer.small_files import read_small
from clearformer.text import TextConfig
from clearformer.training.config import TrainConfig
from clearformer.training.optim import OptimConfig
from clearformer.training.schedules import ScheduleConfig
from clearformer.tuning.methods import TuningConfig


@dataclass(frozen=True)
class Tables:
    """The tables of a recipe. `data` is None for an imported model ([origin]) that was not trained further."""

    data: Any
    text: TextConfig
    model: Any
    objective: Any
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    decode: DecodeConfig
    evaluate: EvaluateConfig
    image: ImageConfig | None = None
    sound: SoundConfig | None = None
    tuning: TuningConfig | None = None
    origin: Origin | None = None

    def with_tables(self, **tables: Any) -> Self:
        """Return a copy with some tables replaced."""
        return replace(self, **tables)

    def with_model(self, **changes: Any) -> Self:
        """Return a copy with some keys of [model] changed."""
        return replace(self, model=self.model.changed(**changes))

    def with_vocab(self, **sizes: int) -> Self:
        """Return a copy with these vocabulary sizes. An imported model keeps the unused rows of its embeddings."""
        if self.origin is not None:
            sizes = {key: max(size, getattr(self.model, key)) for key, size in sizes.items()}
        return self.with_model(**sizes)

    def dump(self) -> str:
        """Return the recipe as TOML, with every field. A field that is None is omitted, because TOML has no null."""
        return tomli_w.dumps(self.tables())

    def tables(self) -> dict[str, Any]:
        """Return the recipe as nested dictionaries of plain values."""
        tables = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: table.model_dump(mode="json", exclude_none=True)
            for name, table in tables.items()
            if table is not None
        }


def read_toml(path: Path, example: str) -> dict[str, Any]:
    """Read the tables of a TOML file. `example` is the hint for a file that is not valid TOML."""
    try:
        return tomllib.loads(read_small(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"{path} cannot be read: {reason}", "give a recipe, which is a TOML file, for example one from recipes/"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{path} is not valid TOML: {reason}", example) from None


def override(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply settings such as "train.steps=500".

    A preset among the settings overrides the sizes in the table; the other settings override the preset, in any
    order. The preset of the result has its canonical name.
    """
    changes = [parse_setting(setting) for setting in settings]
    result = {name: dict(section) if isinstance(section, dict) else section for name, section in table.items()}
    for path, value in changes:
        if path == ["model", "preset"] and isinstance(result.get("model"), dict):
            for size in presets().get(preset_name(str(value)), {}):
                result["model"].pop(size, None)
    for setting, (path, value) in zip(settings, changes):
        place = result
        for part in path[:-1]:
            inner = place.get(part, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(f"--set {setting}: `{part}` is a value, not a table", f"set `{part}` instead")
            place[part] = place = dict(inner)
        place[path[-1]] = value
    lengths = [path[1] for path, _ in changes if path in (["train", "steps"], ["train", "epochs"])]
    if lengths[-1:] == ["steps"]:
        result["train"].pop("epochs", None)  # the last setting takes precedence
    if isinstance(model := result.get("model"), dict) and model.get("preset"):
        model["preset"] = preset_name(str(model["preset"]))
    return result


def parse_setting(setting: str) -> tuple[list[str], Any]:
    """Return the path and value in "train.steps=500". The value is TOML; text that is not valid TOML is a string."""
    key, equals, text = setting.partition("=")
    path = key.strip().split(".")
    if not equals or len(path) < 2:
        raise ConfigError(f"--set {setting}: expected table.key=value", "for example --set train.steps=500")
    try:
        return path, tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return path, text.strip()
