from collections.abc import Callable
from pathlib import Path
from typing import Any

CliCall = Callable[..., Any]


def test_a_figure_that_is_none(cli: CliCall) -> None:
    code, out, err = cli("plot", "optimisers")
    assert (code, out) == (1, "")
    assert err == "error: there is no figure called `optimisers`\nhint: did you mean `optimizers`?\n"


def test_a_picture_of_another_kind_is_refused_before_anything_is_computed(cli: CliCall, tmp_path: Path) -> None:
    code, out, err = cli("plot", "optimizers", "--out", tmp_path / "race.pdf")
    assert (code, out) == (1, "")
    assert err.endswith("race.pdf: its suffix is `.pdf`\nhint: end the name in .png or .svg\n")
