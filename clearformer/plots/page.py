"""A page with a figure and its numbers: one HTML file that needs nothing else, neither network nor scripts."""

import json
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clearformer.disk import write_text

STYLE = """
:root { color-scheme: light; font: 15px/1.5 system-ui, sans-serif; color: #2b2d33; background: #fff }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
h1 { font-size: 1.3rem } figure { margin: 1rem 0; overflow-x: auto } figure svg { max-width: none; height: auto }
figcaption, summary { color: #5c6069 } pre { overflow: auto; max-height: 30rem; background: #f5f6f8; padding: 1rem }
"""


def write_page(title: str, figures: Mapping[str, str], values: Mapping[str, Any], path: Path | str) -> Path:
    """Write a page with one SVG for each caption, and the values as JSON."""
    parts = [f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for caption, svg in figures.items()]
    numbers = json.dumps(values, ensure_ascii=False).replace("<", "\\u003c")
    text = "\n".join(
        [
            f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>',
            f"<style>{STYLE}</style>\n<h1>{escape(title)}</h1>",
            *parts,
            f'<script type="application/json" id="values">{numbers}</script>',
            "</html>\n",
        ]
    )
    path = Path(path)
    write_text(path, text)
    return path


def as_svg(draw: Callable[[Path], Any]) -> str:
    """Return what `draw` draws to an .svg file as an element for a page."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "figure.svg"
        draw(file)
        text = file.read_text(encoding="utf-8")
    return text[text.index("<svg") :]
