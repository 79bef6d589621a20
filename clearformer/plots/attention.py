"""Where each target position looks: one map per head, and the mean over heads where there are several."""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clearformer.errors import DataError
from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import RULE, picture


def plot_attention(
    pattern: ArrayLike, source_pieces: Sequence[str], target_pieces: Sequence[str], path: Path | str, title: str = ""
) -> Path:
    """Draw an attention pattern (H, T, S) with the target pieces down the side and the source pieces along the foot.

    Every row of a map sums to one, or to less with a learned prefix, which takes the rest. All maps share one scale,
    from zero to the largest weight of any head, so that a sharp head looks darker than a diffuse one. Long sentences
    get small squares, and then not every word is written.
    """
    heads = np.asarray(pattern, dtype=float)
    T, S = len(target_pieces), len(source_pieces)
    if heads.ndim != 3 or heads.shape[1:] != (T, S) or 0 in heads.shape:
        raise DataError(
            f"an attention pattern of shape {heads.shape} does not fit {T} target and {S} source pieces",
            "give an array (heads, target pieces, source pieces)",
        )
    maps = {f"head {h}": weights for h, weights in enumerate(heads)}
    maps |= {"mean of heads": heads.mean(axis=0)} if len(heads) > 1 else {}
    columns = ceil(sqrt(len(maps)))
    rows = ceil(len(maps) / columns)

    families, words = lettering([make_visible(piece) for piece in [*source_pieces, *target_pieces]])
    cell = min(0.3, max(0.05, 3.6 / max(T, S)))  # the side of a square, in inches
    stride = ceil(0.17 / cell)  # a line of text needs 0.17 inches
    margin = 0.08 * max(map(len, words))
    width = columns * max(cell * S + 0.15, 1.3) + margin + 0.9
    title_families, [heading] = lettering([title])
    lines = wrap(heading, int(width / 0.09))  # inches that a letter of it needs
    height = rows * (cell * T + 0.35) + margin + 0.2 + 0.2 * max(1, len(lines))

    with picture(path, width, height) as figure:
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


def plot_look(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """The same of `lens.attention.look`'s numbers."""
    return plot_attention(numbers["pattern"], numbers["source"], numbers["target"], path, numbers["title"])
