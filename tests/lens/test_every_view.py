"""Every view returns numbers, a figure and a page."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearformer.plots.page import as_svg
from clearformer.verbs.lens import VIEWS, view

from .small_handles import TEXT, small

SOUND = torch.sin(torch.arange(8000) * 0.7).mul(9000).short().numpy()
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("transformer", {"text": TEXT}),
    "ctc": ("speech-rnn", {"text": SOUND}),
    "gates": ("rnn-lm", {"text": TEXT}),
    "gradient-flow": ("t5", {"text": TEXT}),
    "histograms": ("bert", {"text": TEXT}),
    "neighbours": ("seq2seq", {"text": "king - man + woman", "top": 3}),
    "positions": ("gpt", {}),
    "probe": ("bert", {"texts": "labelled.tsv"}),
    "vectors": ("transformer", {"words": "king queen man woman"}),
    "logit-lens": ("bert", {"text": TEXT}),
    "alternatives": ("rnn-lm", {"text": TEXT}),
    "beam-tree": ("seq2seq", {"text": TEXT, "beam": 3}),
    "attribution": ("bert-of-classifier", {"text": TEXT, "steps": 5}),
    "logit-attribution": ("gpt", {"text": TEXT}),
    "walk": ("t5", {"text": TEXT}),
    "flow": ("bert", {"text": TEXT}),
    "heads": ("transformer", {"text": TEXT}),
    "induction": ("gpt", {}),
    "patching": ("gpt", {"text": TEXT, "other": "the queen saw a bike"}),
    "rollout": ("transformer", {"text": TEXT}),
}


def test_no_view_is_forgotten() -> None:
    assert {*ASKED} == {*VIEWS}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that has been saved so far."""
    saved: list[Figure] = []
    save = Figure.savefig

    def watched(figure: Figure, *args: Any, **options: Any) -> None:
        saved.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", watched)
    return saved


def shows_data(axes: Axes) -> bool:
    """Whether axes have a line, patch, collection or image, and more than empty ones."""
    return axes.has_data() and bool(np.isfinite(axes.dataLim.get_points()).all())


def test_empty_axes_show_no_data() -> None:
    empty, line, full = Figure().subplots(1, 3)
    line.plot([], [])
    full.plot([0, 1], [0, 1])
    assert [shows_data(axes) for axes in (empty, line, full)] == [False, False, True]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_numbers_figures_and_a_page(name: str, tmp_path: Path, figures: list[Figure]) -> None:
    kind, options = ASKED[name]
    if "texts" in options:
        options = {"texts": tmp_path / options["texts"]}
        options["texts"].write_text("".join(f"the {w} saw a city\t{w}\n" for w in ("king", "queen") for _ in range(9)))
    page = tmp_path / "view.html"
    values = view(name, small(kind), out=page, **options)
    assert json.loads(json.dumps(values, allow_nan=False)) == json.loads(
        values.save(tmp_path / "view.json").read_text()
    )
    figures.clear()
    drawings = [as_svg(draw) for draw in values.figures.values()]
    assert len(figures) == len(drawings)
    assert all(figure.axes and all(map(shows_data, figure.axes)) for figure in figures)
    assert len(drawings) > 0
    for drawing in drawings:
        assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == len(drawings)
    inside = text.partition('<script type="application/json" id="values">')[2].partition("</script>")[0]
    assert json.loads(inside) == json.loads(json.dumps(values))
    assert "src=" not in text  # a page of its own
    assert "<link" not in text
    assert values.save(tmp_path / "view.png").read_bytes().startswith(b"\x89PNG")
