"""Plot attention patterns: one map per head, and the mean over heads if there are several."""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clearformer.errors import DataError
from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import RULE, saved_figure
from clearformer.wording import count


def plot_attention(
    pattern: ArrayLike, source_tokens: Sequence[str], target_tokens: Sequence[str], path: Path | str, title: str = ""
) -> Path:
    """Plot an attention pattern (H, T, S), with target tokens on the vertical and source tokens on the horizontal axis.

    Each row of a map sums to 1, or to less with prefix tuning, where the prefix receives the rest. All maps have the
    same colour scale, from 0 to the largest weight of any head, so that a sharp head looks darker than a diffuse one.
    Long texts have small cells, and only some of their tokens are labelled.
    """
    heads = np.asarray(pattern, dtype=float)
    T, S = len(target_tokens), len(source_tokens)
    if heads.ndim != 3 or heads.shape[1:] != (T, S) or 0 in heads.shape:
        raise DataError(
            f"an attention pattern of shape {heads.shape} does not fit {count(T, 'target token')} and "
            f"{count(S, 'source token')}",
            "give an array of shape (heads, target tokens, source tokens)",
        )
    maps = {f"head {h}": weights for h, weights in enumerate(heads)}
    maps |= {"mean of heads": heads.mean(axis=0)} if len(heads) > 1 else {}
    columns = ceil(sqrt(len(maps)))
    rows = ceil(len(maps) / columns)

    families, words = lettering([make_visible(token) for token in [*source_tokens, *target_tokens]])
    cell = min(0.3, max(0.05, 3.6 / max(T, S)))  # the side of a cell, in inches
    stride = ceil(0.17 / cell)  # a line of text needs 0.17 inches
    margin = 0.08 * max(map(len, words))
    width = columns * max(cell * S + 0.15, 1.3) + margin + 0.9
    title_families, [heading] = lettering([title])
    lines = wrap(heading, int(width / 0.09))  # inches per character
    height = rows * (cell * T + 0.35) + margin + 0.2 + 0.2 * max(1, len(lines))

    with saved_figure(path, width, height) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for index, (ax, (name, weights)) in enumerate(zip(axes, maps.items())):
            image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=heads.max(), interpolation="nearest")
            ax.set_title(name)
            ax.spines[:].set(visible=True, color=RULE)
            ax.tick_params(length=0)
            ax.set(xticks=range(0, S, stride), yticks=range(0, T, stride), xticklabels=[], yticklabels=[])
            if index % columns == 0:
                ax.set_yticklabels(words[S::stride], fontfamily=families)
            if index + columns >= len(maps):
                ax.set_xticklabels(
                    words[:S:stride], rotation=45, ha="right", rotation_mode="anchor", fontfamily=families
                )
        for blank in axes[len(maps) :]:
            blank.remove()
        bar = figure.colorbar(
            image, ax=axes[: len(maps)], shrink=min(1, 2.5 / height), anchor=(0, 1), aspect=24, pad=0.02
        )
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
        figure.suptitle("\n".join(lines), fontfamily=title_families, fontsize=11)
    return Path(path)


def plot_look(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.lens.attention.look`."""
    return plot_attention(data["pattern"], data["source"], data["target"], path, data["title"])
