"""The claims of the notes by name: what computes each, and what draws the numbers that come of it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearformer import plots
from clearformer.claims import complexity, gradients, level_sets, optimizers, positions, schedules
from clearformer.errors import ConfigError, suggest
from clearformer.plots.style import suffix_of


class Figure(NamedTuple):
    compute: Callable[[int], dict[str, Any]]  # from a seed
    draw: Callable[[Mapping[str, Any], Path | str], Path]


FIGURES = {
    "optimizers": Figure(optimizers.race, plots.plot_optimizers),
    "gradients": Figure(gradients.watch, plots.plot_gradients),
    "positions": Figure(positions.look, plots.plot_positions),
    "schedules": Figure(lambda seed: schedules.follow(), plots.plot_schedules),
    "complexity": Figure(complexity.measure, plots.plot_complexity),
    "level-sets": Figure(level_sets.walk, plots.plot_level_sets),
}


def plot(name: str, out: Path | str | None = None, seed: int = 0) -> dict[str, Any]:
    """Compute a claim and draw it as a PNG or SVG file, by default NAME.png; returns the numbers that are drawn."""
    if name not in FIGURES:
        raise ConfigError(f"there is no figure called `{name}`", suggest(name, FIGURES))
    out = Path(out or f"{name}.png")
    suffix_of(out)  # before anything is computed
    with one_thread():
        numbers = FIGURES[name].compute(seed)
    FIGURES[name].draw(numbers, out)
    return {"picture": str(out), **numbers}


@contextmanager
def one_thread() -> Iterator[None]:
    """All sizes here are small: a second thread would only be waited for."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
