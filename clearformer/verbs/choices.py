"""The settings that everyone chooses first, by short names. Each sets one key of the recipe.

    steps   train.steps       lr           optim.lr           seed        train.seed
    epochs  train.epochs      batch_size   train.tokens       precision   train.precision

The command line has them as options, such as --batch-size; the Python functions have them as keywords.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clearformer.errors import ConfigError

Settings = Sequence[str] | Mapping[str, Any]
"""Settings as --set takes them, "train.steps=500", or as a dictionary with dotted keys or nested tables."""

KEYS = {
    "steps": "train.steps",
    "epochs": "train.epochs",
    "lr": "optim.lr",
    "batch_size": "train.tokens",
    "seed": "train.seed",
    "precision": "train.precision",
}
LENGTHS = ("train.steps", "train.epochs")  # two ways to say how long a run is


def all_settings(settings: Settings, **choices: Any) -> list[str]:
    """Return the settings, with the ones that have short names, in the form of --set.

    A key that is set twice is an error, and so are both steps and epochs. With a batch size, a step has one micro-batch
    unless train.accumulation is set.
    """
    result = as_strings(settings)
    given = {setting.partition("=")[0].strip(): f"--set {setting}" for setting in result}
    for name, value in choices.items():
        if value is None:
            continue
        key, option = KEYS[name], f"--{name.replace('_', '-')}"
        if key in given:
            raise ConfigError(f"{option} and {given[key]} both set {key}", "give one of them")
        given[key] = option
        result.append(f"{key}={as_toml(value)}")
    if all(key in given for key in LENGTHS):
        steps, epochs = (given[key] for key in LENGTHS)
        raise ConfigError(
            f"{steps} and {epochs} cannot be combined: both set the length of the run", "give one of them"
        )
    if choices.get("batch_size") is not None and "train.accumulation" not in given:
        result.append("train.accumulation=1")
    return result


def as_strings(settings: Settings) -> list[str]:
    """Return settings as strings in the form of --set."""
    if isinstance(settings, str):
        return [settings]
    if not isinstance(settings, Mapping):
        return list(settings)
    return [f"{key}={as_toml(value)}" for key, value in flat(settings)]


def flat(table: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Return the dotted keys and the values of nested tables; an empty table is a value."""
    pairs: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = f"{before}{name}"
        pairs += flat(value, f"{key}.") if isinstance(value, Mapping) and value else [(key, value)]
    return pairs


def as_toml(value: Any) -> str:
    """Return a value as TOML writes it inside a line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{as_toml(str(name))} = {as_toml(inner)}" for name, inner in value.items()) + "}"
    if hasattr(value, "item"):  # a number of NumPy or torch
        return as_toml(value.item())
    if isinstance(value, int | float):
        return repr(value)
    if value is None:
        raise ConfigError("a setting cannot be None", "omit the key to keep its default")
    from json import dumps

    return dumps(str(value), ensure_ascii=False)
