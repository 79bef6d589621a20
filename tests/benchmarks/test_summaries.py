"""Baselines and metrics of summaries, and the recipe in miniature."""

import json
import sys
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest


@pytest.fixture
def summaries() -> Any:
    return import_module("summaries")


@pytest.fixture
def told() -> list[Any]:
    stories = import_module("stories")
    draw = Random(5)
    return [stories.tell(draw) for _ in range(11)]


def test_the_closest_sentence_is_the_best_copy(summaries: Any, told: list[Any]) -> None:
    story = told[0]._replace(
        sentences=["The king slept", "The king bought a cart which the boy saw", "The king will buy a boat"],
        summary="The king bought a cart",
    )
    assert summaries.closest(story) == story.sentences[1]


def test_rouge_of_copies(summaries: Any, told: list[Any], tmp_path: Path) -> None:
    """ROUGE-1 of 'the king bought' against 'the king bought a cart': 2 · 3 / (3 + 5)."""
    assert summaries.rouge({"copies": ["The king bought"]}, ["The king bought a cart"], tmp_path) == {
        "copies": {"rouge1": 0.75, "rouge2": 0.6667, "rougeL": 0.75}
    }
    rows = summaries.baselines(told, tmp_path)
    assert rows["lead_1"]["rougeL"] < rows["closest"]["rougeL"] < 1
    assert 1 / 6 <= rows["most_frequent_topic"] < 1


def test_fractions_of_equal_texts(summaries: Any) -> None:
    assert summaries.fraction(["a", "b", "c"], ["a", "c", "c"]) == 0.6667


@pytest.mark.slow
def test_the_script_in_miniature(summaries: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained, the model is far from the baselines; every key of the result and the figure are there."""
    parts = summaries.stories.splits(40, 5)
    monkeypatch.setattr(summaries.stories, "splits", lambda: parts)
    recipe = summaries.RECIPE.read_text().replace("steps = 2500", "steps = 2").replace("d_model = 128", "d_model = 16")
    (tmp_path / "t5.toml").write_text(recipe)
    monkeypatch.setattr(summaries, "RECIPE", tmp_path / "t5.toml")
    out, figure = tmp_path / "out.json", tmp_path / "out.png"
    arguments = ["--seeds", "3,5", "--folder", str(tmp_path / "runs"), "--out", str(out), "--figure", str(figure)]
    monkeypatch.setattr(sys, "argv", ["summaries.py", *arguments])
    summaries.main()
    result = json.loads(out.read_text())
    assert result["stories"] == {"train": 40, "valid": 5, "test": 5, "combinations": 5}
    for split in summaries.JUDGED:
        assert result[split]["t5"]["mean"]["rougeL"] < result[split]["closest"]["rougeL"]
        assert [*result[split]["t5"]["seeds"]] == ["3", "5"]
        assert len(result[split]["t5"]["examples"]) == 3
    assert figure.stat().st_size > 0
