"""The results of a comparison as a self-contained HTML page: table, figure (SVG) and settings."""

from collections.abc import Mapping
from html import escape
from typing import Any

from clearformer.wording import listed

STYLE = """
body { font: 15px/1.5 sans-serif; color: #2b2d33; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1.5rem 0 }
th, td { text-align: right; padding: .3rem .9rem; border-bottom: 1px solid #e4e6ea; font-variant-numeric: tabular-nums }
th { color: #7a7e87; font-weight: normal } th:first-child, td:first-child { text-align: left }
tbody tr:first-child { font-weight: bold } svg { width: 100%; height: auto } pre { background: #f6f7f9; padding: 1rem }
"""


def page(results: Mapping[str, Any], svg: str, settings: str) -> str:
    header, *rows = cells(results)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    seeds = [str(run["seed"]) for run in next(iter(results["runs"].values()))]
    note = f"Means over seeds {listed(seeds)}" if len(seeds) > 1 else f"Seed {seeds[0]}"
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(results["title"])}</title>
<style>{STYLE}</style>
<h1>{escape(results["title"])}</h1>
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
{svg[svg.index("<svg") :]}
<p>{note}. The time to the goal counts training only, at its median speed. Memory is the peak memory of the
process or, on CUDA, of its tensors.</p>
<pre>{escape(settings)}</pre>
</html>
"""


def cells(results: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of the table as text, header first. A single seed has no standard deviation to show."""
    goal, has_sd = results["goal"], all(row["sd"] is not None for row in results["table"])
    spread = ["± sd"] if has_sd else []
    header = ["", results["metric"], *spread, "parameters", f"{results['unit']}/s", "memory, MB", "seconds"]
    rows = [
        [
            row["name"],
            f"{row['score']:.4g}",
            *([f"{row['sd']:.2g}"] if has_sd else []),
            *(f"{row[key]:,.0f}" for key in ("parameters", "per_second", "peak_mb", "seconds")),
            *(
                []
                if goal is None
                else ["never" if row["reached_seconds"] is None else f"{row['reached_seconds']:,.0f}"]
            ),
        ]
        for row in results["table"]
    ]
    return [header if goal is None else [*header, f"seconds to {goal:g}"], *rows]
