import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.claims import complexity
from clearformer.claims.complexity import D, H, exponent, measure, multiply_adds_of
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.recurrent import Unrolled
from clearformer.plots import plot_complexity


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LENGTHS": (5, 11, 23), "LONG": 5, "ROUNDS": 1}.items():
            patch.setattr(complexity, name, value)
        return measure()


@pytest.mark.parametrize("power", [1.0, 1.7, 2.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    lengths = [512, 1024, 2048]
    assert exponent(lengths, [3e-7 * T**power for T in lengths]) == pytest.approx(power)


@pytest.mark.parametrize("T", [3, 7])
def test_multiplications_by_hand(T: int) -> None:
    with torch.no_grad():
        assert multiply_adds_of(MultiHeadAttention(D, H), T) == 4 * T * D**2 + 2 * T**2 * D
        assert multiply_adds_of(Unrolled("lstm", D, D), T) == 8 * T * D**2


def test_every_layer_is_timed_and_fitted(numbers: dict[str, Any]) -> None:
    for costs in (*numbers["seconds"].values(), *numbers["multiply_adds"].values()):
        assert len(costs["cost"]) == 3
        assert all(cost > 0 for cost in costs["cost"])
    assert numbers["multiply_adds"]["LSTM"]["exponent"] == pytest.approx(1)


def test_the_picture_is_drawn_from_the_numbers_alone(numbers: dict[str, Any], tmp_path: Path) -> None:
    svg = plot_complexity(json.loads(json.dumps(numbers)), tmp_path / "cost.svg").read_text()
    for words in (numbers["title"], "seconds", "microseconds per token", "multiply-adds", "LSTM: T^1.00"):
        assert f"<!-- {words} -->" in svg
