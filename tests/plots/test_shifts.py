from pathlib import Path

import pytest

from clearformer.plots import plot_shifts


@pytest.mark.parametrize(("n", "named"), [(7, range(7)), (37, range(0, 36, 2)), (61, range(0, 58, 4))])
def test_as_many_layers_are_named_as_have_room(tmp_path: Path, n: int, named: range) -> None:
    line = {"step": 2, "equivariance": [0.7, 0.5], "invariance": [0.3, 0.2]}
    layers = {f"conv{i}": line for i in range(n)}
    numbers = {"title": "shifts", "shifts": [1, 3], "layers": layers, "hidden": [0.9, 0.8]}
    svg = plot_shifts(numbers, tmp_path / "shifts.svg").read_text()
    counts = [svg.count(f"<!-- conv{i} (stride 2) -->") for i in range(n)]
    assert counts == [2 * (i in named) for i in range(n)]  # below both panels
    assert svg.count("<!-- input of the head -->") == 1
