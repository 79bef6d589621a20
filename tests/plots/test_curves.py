from pathlib import Path
from typing import Any

import pytest

from clearformer.errors import ConfigError, DataError
from clearformer.plots import plot_curves
from clearformer.plots.curves import Line, series

METRICS: list[dict[str, Any]] = [
    {"step": 2, "kind": "train", "loss": 7.0, "lr": 1e-4, "tokens_per_s": 14500.0, "grad_norm": 3.0, "epoch": 0},
    {"step": 3, "kind": "valid", "loss": 5.0, "bleu": 11.0},
    {"step": 5, "kind": "train", "loss": 3.0, "lr": 2e-4, "tokens_per_s": 15100.0, "grad_norm": 2.0, "epoch": 0},
    {"step": 5, "kind": "valid", "loss": 4.0, "bleu": None},
]


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_suffix_chooses_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = plot_curves(METRICS, tmp_path / "new" / f"curves.{suffix}")
    assert path == tmp_path / "new" / f"curves.{suffix}"
    assert path.read_bytes().startswith(magic)


def test_same_data_same_svg(tmp_path: Path) -> None:
    first, second = (plot_curves(METRICS, tmp_path / f"{name}.svg").read_bytes() for name in "ab")
    assert first == second


def test_series_tells_training_from_validation_and_skips_what_was_not_measured() -> None:
    assert series(METRICS, Line("train", "loss")) == ([2, 5], [7.0, 3.0])
    assert series(METRICS, Line("valid", "loss")) == ([3, 5], [5.0, 4.0])
    assert series(METRICS, Line("valid", "bleu")) == ([3], [11.0])


def test_panels_without_values_are_left_out(tmp_path: Path) -> None:
    """SVG keeps each string as a comment beside its outlines."""
    records = [{"step": step, "kind": "train", "loss": loss} for step, loss in [(2, 3.0), (3, 1.25)]]
    svg = plot_curves(records, tmp_path / "loss.svg").read_text()
    assert "<!-- Loss -->" in svg
    assert "<!-- 1.25 -->" in svg
    assert "<!-- BLEU -->" not in svg


@pytest.mark.parametrize("values", [[2.0], [2.0, float("nan")], [float("nan")], [2.0, float("inf")], [20000.0, 3.0]])
def test_odd_values_are_drawn_without_complaint(tmp_path: Path, values: list[float]) -> None:
    records = [{"step": step, "kind": "train", "loss": value} for step, value in enumerate(values, start=1)]
    assert plot_curves(records, tmp_path / "odd.png").exists()


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of the 1 records has a known key"):
        plot_curves([{"step": 1, "kind": "train", "perplexity": 3.0}], tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"end the name in \.png or \.svg"):
        plot_curves(METRICS, tmp_path / "a.jpeg")
