"""A worked example: figures of the course notes beside the same figures computed by the code of this package.

    @worked("apple", "…", place="…", code=attend)          the decorated function yields the figures
    def apple() -> Iterator[Figure]: ...

A figure agrees if the computed value is the value of the notes. Where the notes give no value, or a wrong one, it is
compared with `expected`, worked out by hand; a wrong one has a `slip`, which says what is wrong, and must differ.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import torch

Value = Any  # a number, a string, or a list of values
ROOT = Path(sys.modules["clearformer"].__file__ or "").parents[1]


@dataclass(frozen=True)
class Figure:
    """One value. `notes` is None where the notes leave the value open; `tolerance` is relative."""

    what: str
    here: Value
    notes: Value = None
    expected: Value = None
    slip: str = ""
    tolerance: float = 1e-6

    @property
    def agrees(self) -> bool:
        """Whether the computed value is right, and the value of the notes is wrong only where a slip is stated."""
        right = self.notes if self.expected is None else self.expected
        is_slip = self.notes is not None and not equal(self.here, self.notes, self.tolerance)
        return equal(self.here, right, self.tolerance) and is_slip == bool(self.slip)


@dataclass(frozen=True)
class Example:
    """One example: its name, what it shows, its place in the notes, its figures, and the code that computes them."""

    name: str
    title: str
    place: str
    code: tuple[Callable[..., Any], ...]
    figures: Callable[[], Iterator[Figure]]

    def run(self) -> list[Figure]:
        """Compute the figures, and leave torch's random numbers as they were."""
        with torch.random.fork_rng(devices=[]):
            return list(self.figures())

    def lines(self) -> list[str]:
        """Return the place of each function or class of `code` as FILE:LINE, read from the code itself."""
        return [line_of(item) for item in self.code]


def worked(
    name: str, title: str, place: str, *code: Callable[..., Any]
) -> Callable[[Callable[[], Iterator[Figure]]], Example]:
    """Make an Example from the function that yields its figures."""
    return lambda figures: Example(name, title, place, code, figures)


def line_of(item: Callable[..., Any]) -> str:
    """Return FILE:LINE of a function or class; the file is relative to the folder that contains the package."""
    item = inspect.unwrap(item)
    path = Path(inspect.getsourcefile(item) or "")
    return f"{path.relative_to(ROOT).as_posix()}:{inspect.getsourcelines(item)[1]}"


def equal(a: Value, b: Value, tolerance: float) -> bool:
    """Compare numbers up to a relative tolerance, and lists item by item; zero is compared absolutely."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b))
    if is_number(a) and is_number(b):
        return isclose(a, b, rel_tol=tolerance, abs_tol=tolerance if 0 in (a, b) else 0.0)
    return type(a) is type(b) and a == b


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
