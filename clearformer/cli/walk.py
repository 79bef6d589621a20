"""Print a walk through a model in the terminal: one table per step."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

MOST_ROWS, MOST_COLUMNS = 12, 6


def print_walk(values: Mapping[str, Any]) -> None:
    """Print every step with its equation: the first rows and columns, rounded."""
    console = Console(highlight=False)
    for number, step in enumerate(values["steps"], 1):
        rows, columns = step["rows"], step["columns"]
        more = [] if len(columns) <= MOST_COLUMNS else ["…"]
        size = f"{len(rows)} × {len(columns)}"
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("")
        for name in [*columns[:MOST_COLUMNS], *more]:
            table.add_column(escape(name), justify="right", style="dim" if name == "…" else None)
        for name, row in list(zip(rows, step["values"], strict=True))[:MOST_ROWS]:
            table.add_row(escape(name), *(short(value) for value in row[:MOST_COLUMNS]), *more)
        if len(rows) > MOST_ROWS:
            table.add_row("…")
        console.print(f"[bold]{number}. {escape(step['name'])}[/bold]   {escape(step['equation'])}   [dim]{size}[/dim]")
        console.print(table)
        console.print()


def short(value: float | None) -> str:
    if value is None:
        return "−∞"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
