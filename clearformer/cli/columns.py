"""A table as plain text."""

from collections.abc import Sequence


def in_columns(rows: Sequence[Sequence[str]], n_left: int = 1, is_last_left: bool = False) -> str:
    """Return rows of cells as lines. The first `n_left` columns, and possibly the last one, are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [
            f"{cell:<{width}}" if i < n_left or (is_last_left and i == len(row) - 1) else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
