"""Gaps between training and test: means over the seeds, and the figure."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def overfitting() -> Any:
    return import_module("overfitting")


def row(seed: int, train: float, test: float) -> dict[str, Any]:
    sides = {"train": {"loss": train, "accuracy": 1 - train}, "test": {"loss": test, "accuracy": 1 - test}}
    gap = {"loss": test - train, "accuracy": test - train}
    return {"seed": seed, **sides, "gap": gap, "steps": 7, "trainable": 11, "rate": 0.1}


def test_a_summary_has_the_means_and_every_seed(overfitting: Any) -> None:
    rows = [row(1, 0.1, 0.5), row(2, 0.3, 0.5)]
    result = overfitting.summary(rows)
    assert result["train"] == {"loss": 0.2, "accuracy": 0.8}
    assert result["gap"] == {"loss": 0.3, "accuracy": 0.3}
    assert result["seeds"] == rows


def test_no_run_stops_early_or_chooses_a_checkpoint(overfitting: Any) -> None:
    assert "train.patience=0" in overfitting.settings("lora", 5)
    assert "train.epochs=5" in overfitting.settings("lora", 5)
    assert not any("epochs" in setting for setting in overfitting.settings("scratch", 5))


def test_the_figure_has_a_line_for_every_method_and_length(overfitting: Any, tmp_path: Path) -> None:
    results = {name: {"5": overfitting.summary([row(1, 0.1, 0.5)])} for name in ("full", "scratch")}
    overfitting.plot(results, tmp_path / "gap.svg")
    text = (tmp_path / "gap.svg").read_text()
    assert "full, 5 epochs" in text
    assert "from scratch" in text
