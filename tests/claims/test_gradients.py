import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.claims import gradients
from clearformer.claims.gradients import LINEAR, MARKS, READERS, T, watch
from clearformer.plots import plot_gradients


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STEPS": 3, "SAMPLES": 2}.items():
            patch.setattr(gradients, name, value)
        return watch(seed=2)


def test_every_reader_beginning_and_state_has_its_numbers(numbers: dict[str, Any]) -> None:
    for start in ("default", "orthogonal"):
        for state in ("untrained", "trained"):
            lines = numbers["norms"][start][state]
            assert lines.keys() == {*READERS, LINEAR}
            for name, line in lines.items():
                assert len(line) == T
                assert numbers["at"][start][state][name] == {str(d): line[d] for d in MARKS}


def test_what_theory_fixes_holds_in_the_figure(numbers: dict[str, Any]) -> None:
    """Orthogonal and linear, the norm is 1; torch's own W contracts; attention does not care how far it is."""
    assert numbers["norms"]["orthogonal"]["untrained"][LINEAR] == pytest.approx([1.0] * T, abs=1e-4)
    default = numbers["at"]["default"]["untrained"]
    assert default["RNN"]["100"] < default[LINEAR]["100"] < 1e-15
    assert default["attention"]["100"] > 0.3 * default["attention"]["10"]


def test_three_steps_of_training_change_the_norms(numbers: dict[str, Any]) -> None:
    for start in ("default", "orthogonal"):
        before, after = numbers["norms"][start].values()
        assert all(before[name] != after[name] for name in READERS)


def test_clipping_bounds_the_first_step(numbers: dict[str, Any]) -> None:
    """Both begin with the same loss and the same exploded gradient; after one step they have parted."""
    clipped, free = numbers["clipping"]["with"], numbers["clipping"]["without"]
    assert clipped["loss"][0] == free["loss"][0]
    assert clipped["norm"][0] == free["norm"][0] > 100 * numbers["clipping"]["clip"]
    assert clipped["loss"][1] != free["loss"][1]


def test_texts_are_windows_of_the_stream() -> None:
    stream = torch.arange(500)
    rows = gradients.texts(stream, 11, torch.Generator().manual_seed(1))
    assert rows.shape == (11, T + 1)
    assert torch.equal(rows - rows[:, :1], torch.arange(T + 1).expand(11, -1))


def test_the_picture_is_drawn_from_the_numbers_alone(numbers: dict[str, Any], tmp_path: Path) -> None:
    svg = plot_gradients(json.loads(json.dumps(numbers)), tmp_path / "gradients.svg").read_text()
    for words in (*READERS, LINEAR, "without clipping", "orthogonal initialisation, trained", numbers["title"]):
        assert f"<!-- {words} -->" in svg
