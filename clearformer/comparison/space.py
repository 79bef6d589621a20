"""The settings that a sweep varies: values to choose from, or ranges to draw from.

    optim.lr=0.001,0.003                 each of these values
    optim.lr=0.0001..0.01                a range, drawn uniformly; on a log scale if it spans a factor of ten
    model.n_layers=2..6                  a range of integers

A trial is a choice of one value for each setting. The first trial changes nothing: the default.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from clearformer.errors import ConfigError
from clearformer.tables import parse_setting
from clearformer.wording import count

Trial = dict[str, Any]
RANGE = re.compile(r"\s*([-+.\de]+?)\s*\.\.\s*([-+.\de]+)\s*", re.IGNORECASE)
MAX_TRIALS = 1000


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, rng: Random) -> float:
        """Draw a number, rounded to three digits."""
        is_log = self.low > 0 and self.high / self.low >= 10
        low, high = (math.log(self.low), math.log(self.high)) if is_log else (self.low, self.high)
        value = rng.uniform(low, high)
        value = math.exp(value) if is_log else value
        return min(self.high, max(self.low, round(value))) if self.is_whole else float(f"{value:.3g}")


class Space:
    """The settings of a sweep: for each key, a list of values or a Range."""

    def __init__(self, choices: Mapping[str, Sequence[Any] | Range]) -> None:
        for key, values in choices.items():
            if not isinstance(values, Range) and not values:
                raise ConfigError(f"--over {key}: there is no value to try", f"for example --over {key}=1,2")
        self.choices = dict(choices)

    @classmethod
    def parse(cls, entries: Sequence[str]) -> "Space":
        """Read entries such as "optim.lr=0.001,0.003"."""
        if not entries:
            raise ConfigError("there is no setting to vary", "for example --over optim.lr=0.001,0.003")
        choices: dict[str, Sequence[Any] | Range] = {}
        for entry in entries:
            key, equals, text = entry.partition("=")
            key = key.strip()
            if not equals or "." not in key:
                raise ConfigError(
                    f"--over {entry}: expected table.key=values", "for example --over optim.lr=0.001,0.003"
                )
            if key in choices:
                raise ConfigError(f"--over {key} is given twice", f"give all values in one: --over {key}=1,2,3")
            choices[key] = parse_range(key, text) or [parse_setting(f"{key}={part}")[1] for part in split(text)]
        return cls(choices)

    @property
    def has_ranges(self) -> bool:
        return any(isinstance(values, Range) for values in self.choices.values())

    def grid(self) -> list[Trial]:
        """Return all combinations of the values, after the default."""
        ranges = [key for key, values in self.choices.items() if isinstance(values, Range)]
        if ranges:
            raise ConfigError(
                f"--over {ranges[0]} is a range, which a grid cannot cover", "list its values, or use --method random"
            )
        values: list[Any] = list(self.choices.values())
        n = math.prod(map(len, values))
        if n > MAX_TRIALS:
            raise ConfigError(
                f"the grid has {count(n, 'combination')}", "try fewer values, or --method random with --runs N"
            )
        return [{}, *(dict(zip(self.choices, combination)) for combination in product(*values))]

    def random(self, n: int, seed: int) -> list[Trial]:
        """Return the default and n − 1 different random combinations, or all combinations if these are fewer."""
        trials: list[Trial] = [{}]
        for trial in self.draws(Random(seed)):
            if len(trials) == n:
                break
            if trial not in trials:
                trials.append(trial)
        return trials

    def draws(self, rng: Random) -> Iterator[Trial]:
        for _ in range(50 * MAX_TRIALS):
            yield {
                key: values.draw(rng) if isinstance(values, Range) else rng.choice(values)
                for key, values in self.choices.items()
            }


def parse_range(key: str, text: str) -> Range | None:
    """Read a range such as "0.001..0.1", or return None if the text is none."""
    if not (match := RANGE.fullmatch(text)):
        return None
    try:
        low, high = (int(end) if re.fullmatch(r"[-+]?\d+", end) else float(end) for end in match.groups())
    except ValueError:
        return None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"--over {key}={text}: a range goes from a smaller to a larger number", "for example 0.001..0.01"
        )
    return Range(low, high)


def split(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "[{") - (char in "]}")
            if char == "," and depth == 0:
                parts.append("")
                continue
        parts[-1] += char
    return [part for part in parts if part.strip()]


def as_settings(trial: Mapping[str, Any]) -> list[str]:
    """Return a trial as settings in the form of --set."""
    return [f"{key}={toml(value)}" for key, value in trial.items()]


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def shown(trial: Mapping[str, Any]) -> str:
    """Describe a trial in a line."""
    return ", ".join(f"{key} = {toml(value)}" for key, value in trial.items()) or "default"
