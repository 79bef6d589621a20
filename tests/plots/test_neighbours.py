from pathlib import Path

import pytest

from clearformer.plots.neighbours import plot_neighbours


@pytest.mark.parametrize("cosines", [[], [0.7], [0.9, -0.2]])
def test_a_bar_for_each_neighbour(tmp_path: Path, cosines: list[float]) -> None:
    tokens = ["king", "queen"][: len(cosines)]
    svg = plot_neighbours({"title": "near", "tokens": tokens, "cosines": cosines}, tmp_path / "near.svg").read_text()
    assert [svg.count(f"<!-- {token} -->") for token in tokens] == [1] * len(tokens)
