"""The results as text: the versions and ceilings, the table, and notes on what was skipped or failed."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from clearformer.speed.runner import shown

WIDTH = 200  # columns of a table that is written to a file or a pipe


def print_results(results: Mapping[str, Any]) -> None:
    """Print the results to stdout."""
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(width=width, highlight=False, markup=False, no_color=not sys.stdout.isatty())
    for line in heading(results):
        console.print(line)
    if results["rows"]:
        console.print(as_table(results))
    for line in notes(results):
        console.print(line)


def heading(results: Mapping[str, Any]) -> Iterator[str]:
    versions = results["versions"]
    yield ", ".join(f"{name} {number}" for name, number in versions.items() if name != "device" and number)
    for ceiling in results["ceilings"]:
        yield (
            f"{ceiling['device']}: {ceiling['matmul_tflops']:g} TFLOP/s in {ceiling['precision']} matrix products, "
            f"{ceiling['memory_gb_per_s']:,.0f} GB/s of memory, {ceiling['dispatch_us']:g} µs per small operation"
        )


def as_table(results: Mapping[str, Any]) -> Table:
    """One line per peer. A ratio above 1 means that we are faster."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("work", overflow="fold")
    for name in ("here", "range"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("peer", overflow="fold")
    for name in ("peer's", "range", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in results["rows"].values():
        for cells in lines(entry):
            table.add_row(*cells)
    return table


def lines(entry: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The cells of one row of the results, one tuple per peer that was measured."""
    work, unit = f"{entry['work']} ({entry['device']})", entry["unit"]
    here = entry["engines"].get("here", {})
    if "median" not in here:
        state = "skipped" if "skipped" in entry else "failed"
        yield work, state, "", "", "", "", ""
        return
    figures = shown(here["median"], unit), spread(here)
    peers = [(name, peer) for name, peer in entry["engines"].items() if name != "here" and "median" in peer]
    for i, (name, peer) in enumerate(peers):
        first = (work, *figures) if i == 0 else ("", "", "")
        yield *first, peer["title"], shown(peer["median"], unit), spread(peer), f"{entry['ratios'][name]:.2f}×"
    if not peers:
        yield work, *figures, "–", "", "", ""


def spread(engine: Mapping[str, Any]) -> str:
    """The range of an engine, in the digits of its unit."""
    low, high = engine["range"]
    digits = 0 if low >= 100 else 2
    return f"{low:,.{digits}f}–{high:,.{digits}f}"


def notes(results: Mapping[str, Any]) -> Iterator[str]:
    """What was skipped or failed, and why; and the last losses of curves that were compared."""
    for name, entry in results["rows"].items():
        if "skipped" in entry:
            yield f"{name} is skipped: {entry['skipped']}"
        for engine in entry["engines"].values():
            if "skipped" in engine:
                yield f"{name}: {engine['title']} is skipped: {engine['skipped']}"
            if "error" in engine:
                yield f"{name}: {engine['title']} failed: {engine['error']}"
        if entry.get("losses", {}).get("step"):
            losses = {key: values[-1] for key, values in entry["losses"].items()}
            others = ", ".join(f"{value:.3f} {key}" for key, value in losses.items() if key != "step")
            yield f"{name}: loss at step {losses['step']}: {others}"
    if results.get("interrupted"):
        yield "interrupted: the rows above were measured"
