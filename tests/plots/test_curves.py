import re
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


def titles(svg: str) -> list[str]:
    """The titles of panels, in the order they are drawn, which a number or a legend follows."""
    return [text for text in re.findall("<!-- (.*?) -->", svg) if re.fullmatch("[A-Za-z][A-Za-z_ 1]+[a-zA-Z1]", text)]


def drawn(tmp_path: Path, records: list[dict[str, Any]], panels: dict[str, str] | None = None) -> list[str]:
    lines = {"step", "training", "validation"}
    svg = plot_curves(records, tmp_path / "curves.svg", panels).read_text()
    return [title for title in titles(svg) if title.split()[0] not in lines]


def test_panels_are_titled_as_the_task_says(tmp_path: Path) -> None:
    """Loss is built in, so that a task may name it among its scores; one that it does not name is left out."""
    records = [*METRICS, {"step": 6, "kind": "valid", "loss": 4.0, "bleu": 2.0, "chrf": 3.0, "next": 1.0}]
    found = drawn(tmp_path, records, {"BLEU": "bleu", "chrF": "chrf", "Loss": "loss", "Perplexity": "perplexity"})
    assert found == ["Loss", "BLEU", "chrF", "Learning rate", "Gradient norm", "Tokens per second"]


def test_without_panels_every_score_is_titled_by_its_key(tmp_path: Path) -> None:
    records = [*METRICS, {"step": 6, "kind": "valid", "loss": 4.0, "macro_f1": 0.5}]
    found = drawn(tmp_path, records)
    assert found == ["Loss", "bleu", "macro_f1", "Learning rate", "Gradient norm", "Tokens per second"]


def test_any_unit_of_speed_has_its_panel(tmp_path: Path) -> None:
    records = [{"step": 1, "kind": "train", "loss": 2.0, "recordings_per_s": 7.0}]
    assert drawn(tmp_path, records) == ["Loss", "Recordings per second"]


@pytest.mark.parametrize("values", [[2.0], [2.0, float("nan")], [float("nan")], [2.0, float("inf")], [20000.0, 3.0]])
def test_odd_values_are_drawn_without_complaint(tmp_path: Path, values: list[float]) -> None:
    records = [{"step": step, "kind": "train", "loss": value} for step, value in enumerate(values, start=1)]
    assert plot_curves(records, tmp_path / "odd.png").exists()


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no recognised keys in 1 record"):
        plot_curves([{"step": 1, "kind": "train", "perplexity": 3.0}], tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"use a name that ends in \.png or \.svg"):
        plot_curves(METRICS, tmp_path / "a.jpeg")
