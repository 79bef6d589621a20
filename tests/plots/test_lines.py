from pathlib import Path

import pytest

from clearformer.errors import DataError
from clearformer.plots import plot_lines

SERIES = {"full": ([100, 1000], [0.71, 0.83]), "lora": ([100, 1000], [0.69, 0.82])}


def test_names_and_axes_are_written(tmp_path: Path) -> None:
    svg = plot_lines(SERIES, "examples", "accuracy", tmp_path / "a.svg", scale="log", limits=(0, 1)).read_text()
    for words in ("full", "lora", "examples", "accuracy", "1,000"):
        assert f"<!-- {words} -->" in svg
    assert plot_lines(SERIES, "examples", "accuracy", tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_each_line_has_a_look_of_its_own(tmp_path: Path) -> None:
    many = {str(i): ([0, 1], [i, i]) for i in range(6)}
    svg = plot_lines(many, "x", "y", tmp_path / "a.svg").read_text()
    looks = {
        line.split("style=")[1] for line in svg.splitlines() if "clip-path" in line and "stroke-width: 1.3" in line
    }
    assert len(looks) == 6


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="every line is empty"):
        plot_lines({"a": ([], [])}, "x", "y", tmp_path / "a.svg")
