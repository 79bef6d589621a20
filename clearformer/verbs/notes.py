"""notes: compute the worked examples of the course notes, and compare the figures."""

from typing import Any

from clearformer.worked import EXAMPLES, find
from clearformer.worked.example import Example


def notes(name: str | None = None) -> dict[str, Any]:
    """Compute one worked example of the course notes, or all of them, and compare each figure with the notes.

    Returns `examples`, a list of {name, title, place, code, figures}, and `agrees`, whether every figure is right.
    A figure has `what`, `notes` (None where the notes leave it open), `here`, `slip` (what is wrong in the notes, or
    empty) and `agrees`. `code` are the places of the functions that compute the figures, as FILE:LINE.
    """
    examples = [compute(example) for example in (EXAMPLES.values() if name is None else [find(name)])]
    return {"agrees": all(example["agrees"] for example in examples), "examples": examples}


def contents() -> list[dict[str, str]]:
    """Return the name, the title and the place of each example, without computing anything."""
    return [{"name": item.name, "title": item.title, "place": item.place} for item in EXAMPLES.values()]


def compute(example: Example) -> dict[str, Any]:
    figures = [
        {"what": f.what, "notes": f.notes, "here": f.here, "slip": f.slip, "agrees": f.agrees} for f in example.run()
    ]
    return {
        "name": example.name,
        "title": example.title,
        "place": example.place,
        "code": example.lines(),
        "agrees": all(figure["agrees"] for figure in figures),
        "figures": figures,
    }
