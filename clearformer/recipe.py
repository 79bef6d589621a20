"""A recipe: one TOML file that says everything about a training, and nothing else does.

    [data]       where the files are, how they are filtered and split        data/corpora.py
    [text]       how strings become ids                                      text/tokenizer.py
    [image]      how pictures become numbers                                 data/pixels.py
    [sound]      how recordings become frames                                data/sound.py
    [model]      which architecture, which sizes                             models/<kind>.py
    [objective]  what is predicted                                           objectives/<kind>.py
    [optim]      [schedule]  [train]                                         training/
    [decode]     how it is searched for                                      generation/decode.py
    [evaluate]   how it is scored                                            evaluation/evaluate.py
    [tuning]     what learns of a model that goes on from another            tuning/methods.py
    [origin]     where a model comes from that was not trained here          interop/origin.py

Each table maps to one class that lives beside the thing it configures. The resolved recipe is saved with the run, and
reading it back rebuilds the run.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import tomli_w
from torch import nn

from clearformer.config import Config
from clearformer.data.pixels import ImageConfig
from clearformer.data.sound import SoundConfig
from clearformer.errors import ConfigError, suggest
from clearformer.evaluation.evaluate import EvaluateConfig
from clearformer.generation.decode import DecodeConfig
from clearformer.interop.origin import Origin
from clearformer.registry import names, resolve
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


@dataclass(frozen=True)
class Recipe:
    """The tables above, validated. There is no [data] where there is an [origin] and nothing was trained since."""

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
        made: dict[str, Any] = {
            name: schema.parse(table.get(name, {}), f"{where}: [{name}]") for name, schema in SECTIONS.items()
        }
        made["model"] = choose("model", table.get("model", {}), "transformer", f"{where}: [model]")
        usual = task_of("model", made["model"].kind)
        made["objective"] = choose("objective", table.get("objective", {}), usual, f"{where}: [objective]")
        made["data"] = None
        if "data" in table:
            schema = resolve("data", task_of("objective", made["objective"].kind))
            made["data"] = schema.parse(table["data"], f"{where}: [data]")
        for name, schema in OPTIONAL.items():
            if name in table:
                made[name] = schema.parse(table[name], f"{where}: [{name}]")
        recipe = cls(**made)
        recipe.check(where)
        return recipe

    def check(self, where: str) -> None:
        """What no table can tell by itself. A model of the user's need not have these keys."""
        kept, room = getattr(self.data, "filter", None), getattr(self.model, "max_length", None)
        longest = 0 if kept is None else kept.max_tokens
        if room is not None and longest >= room:  # BOS or EOS comes on top
            raise ConfigError(
                f"{where}: data.filter.max_tokens = {longest} keeps pairs too long for model.max_length = {room}",
                f"set data.filter.max_tokens = {room - 1}, or model.max_length = {longest + 1}",
            )
        share = getattr(self.model, "share", None)
        if share in ("embeddings", "all") and not self.text.shared and self.text.file is None:
            raise ConfigError(
                f"{where}: text.shared = false makes two vocabularies, "
                f'but model.share = "{share}" ties their embeddings',
                'set model.share = "decoder", or text.shared = true',
            )

    def with_model(self, **changes: Any) -> Self:
        return replace(self, model=self.model.changed(**changes))

    def build_objective(self) -> Any:
        """An objective has its own table, and those that it names in `tables` besides."""
        kind = resolve("objective", self.objective.kind)
        return kind(self.objective, *(getattr(self, name) for name in getattr(kind, "tables", ())))

    def with_vocab(self, **sizes: int) -> Self:
        """The model with tables for these tokenizers; one that came from elsewhere may have rows to spare."""
        if self.origin is not None:
            sizes = {key: max(size, getattr(self.model, key)) for key, size in sizes.items()}
        return self.with_model(**sizes)

    def dump(self) -> str:
        """The recipe as TOML, every field written out; what is None is left out, as TOML has no word for it."""
        return tomli_w.dumps(self.tables())

    def tables(self) -> dict[str, Any]:
        """The same as plain values."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: table.model_dump(mode="json", exclude_none=True) for name, table in told.items() if table is not None
        }


def choose(section: str, table: Mapping[str, Any], default: str, where: str) -> Any:
    """A section whose `kind` names the class that configures it; a model may start from a preset."""
    table = dict(table)
    if section == "model" and table.get("preset"):
        table = with_preset(table, where)
    if isinstance(base := table.get("base"), Mapping) and base.get("preset"):  # a model around another
        table["base"] = with_preset(base, f"{where} base")
    kind = str(table.setdefault("kind", default))
    if kind not in names(section):
        hint = f"{suggest(kind, names(section))}; a class of your own is registered by --plugin MODULE"
        raise ConfigError(f"{where} there is no {section} called `{kind}`", hint)
    return resolve(section, kind).Config.parse(table, where)


def read_toml(path: Path, example: str) -> dict[str, Any]:
    """The tables of a file; `example` says what they look like to whoever wrote something else."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"{path} cannot be read: {reason}", "give the path of a recipe, a TOML file such as those in recipes/"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", example) from None


def task_of(section: str, kind: str) -> str:
    """What a model, or an objective, is for. A class of the user's that does not say is for translation."""
    return str(getattr(resolve(section, kind), "task", "translation"))


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Every preset by name, from models/presets/*.toml."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(files("clearformer.models").joinpath("presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            found |= tomllib.loads(file.read_text(encoding="utf-8"))
    return found


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


def model_config(name: str) -> Any:
    """The configuration behind a preset's or a model kind's name."""
    return choose("model", {model_key(name): name}, "transformer", "[model]")


def build_model(config: Any) -> nn.Module:
    model: nn.Module = resolve("model", config.kind)(config)
    return model


def model_key(name: str) -> str:
    """Which key of [model] a name is for: a `preset`, or else a `kind`, such as a class of the user's.

    A preset comes first: `gpt` is the first GPT, of 2018, before it is the kind of them all.
    """
    return "kind" if name in names("model") and name not in presets() else "preset"


def override(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply "train.steps=500" and the like.

    A preset that is set here wins over the sizes that the table writes out, and other settings, before or after it,
    win over the preset. The preset of the result has its proper name.
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
                raise ConfigError(f"--set {setting}: `{part}` is a value, not a table", f"set `{part}` itself")
            place[part] = place = dict(inner)
        place[path[-1]] = value
    if isinstance(model := result.get("model"), dict) and model.get("preset"):
        model["preset"] = preset_name(str(model["preset"]))
    return result


def parse_setting(setting: str) -> tuple[list[str], Any]:
    """The path and value of "train.steps=500". Values are TOML; what is not valid TOML is taken as a string."""
    key, equals, text = setting.partition("=")
    path = key.strip().split(".")
    if not equals or len(path) < 2:
        raise ConfigError(f"--set {setting}: expected table.key=value", "for example --set train.steps=500")
    try:
        return path, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return path, text.strip()
