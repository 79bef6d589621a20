import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer
from clearformer.verbs.plot import FIGURES

CliCall = Callable[..., Any]
QUICK = ["positions", "schedules", "level-sets", "rates"]


@pytest.mark.parametrize("name", QUICK)
def test_what_is_printed_is_what_is_drawn(cli: CliCall, tmp_path: Path, name: str) -> None:
    """The figure is a function of the numbers, and the numbers of the seed."""
    code, out, _ = cli("plot", name, "--out", tmp_path / "a.svg", "--seed", 3, "--json")
    assert code == 0
    numbers = json.loads(out)
    assert numbers == clearformer.plot(name, tmp_path / "a.svg", seed=3)
    again = FIGURES[name].draw(numbers, tmp_path / "b.svg").read_text()
    assert again == (tmp_path / "a.svg").read_text()
    assert f"<!-- {numbers['title']} -->" in again


def test_the_image_is_a_png_here_unless_told(cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli("plot", "positions")
    assert (code, out.split(": ")[0]) == (0, "positions.png")
    assert (tmp_path / "positions.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_is_none(cli: CliCall) -> None:
    code, out, err = cli("plot", "optimisers")
    assert (code, out) == (1, "")
    assert err == "error: there is no figure called `optimisers`\nhint: did you mean `optimizers`?\n"


def test_an_image_of_another_kind_is_refused_before_anything_is_computed(cli: CliCall, tmp_path: Path) -> None:
    code, out, err = cli("plot", "optimizers", "--out", tmp_path / "race.pdf")
    assert (code, out) == (1, "")
    assert err.endswith("race.pdf: unsupported file type for a figure\nhint: use a name that ends in .png or .svg\n")


@pytest.mark.parametrize("name", FIGURES)
def test_help_names_every_figure(cli: CliCall, name: str) -> None:
    assert name in cli("plot", "--help").out
