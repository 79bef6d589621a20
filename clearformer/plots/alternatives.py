"""Plot the alternatives at each step: one column per step, the most probable token on top."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.grid import plot_grid

GAP = "\N{NO-BREAK SPACE}"  # an ordinary space is drawn as ␣, a part of its token


def plot_alternatives(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the values of `lens.alternatives`. Frames: the token of the text; below it, its rank if it is not listed."""
    tokens, probabilities, chosen = data["tokens"], data["probabilities"], data["chosen"]
    n = len(tokens[0])
    ranks = [0 if one is None else one["rank"] for one in chosen]
    columns = [
        f"{token}{GAP}(rank{GAP}{rank:,})" if rank > n else token
        for token, rank in zip(data["outputs"], ranks, strict=True)
    ]
    return plot_grid(
        [[row[k] for row in probabilities] for k in range(n)],
        [[f"{row[k]}{GAP}{percent(p[k])}" for row, p in zip(tokens, probabilities)] for k in range(n)],
        [f"{k + 1}" for k in range(n)],
        columns,
        path,
        data["title"],
        "most probable tokens at each step, shaded by probability; framed: the token of the text",
        [[rank == k + 1 for rank in ranks] for k in range(n)],
    )


def percent(probability: float) -> str:
    return f"{100 * probability:.0f}%" if probability >= 0.005 else "<1%"
