from pathlib import Path

import pytest

import clearformer


@pytest.mark.parametrize(("ending", "kind"), [("png", "image/png"), ("svg", "image/svg+xml")])
def test_a_notebook_shows_the_figure_instead_of_its_values(tmp_path: Path, ending: str, kind: str) -> None:
    path = tmp_path / f"positions.{ending}"
    values = clearformer.plot("positions", path)
    [(shown, content)] = values._repr_mimebundle_(include=None, exclude=None).items()
    assert shown == kind
    assert content == (path.read_bytes() if ending == "png" else path.read_text(encoding="utf-8"))
    assert values["figure"] == str(path)
    assert len(values) > 2  # the values are still there
    path.unlink()
    assert values._repr_mimebundle_() == {}
