"""The text that repeats, and what switching heads off removes from a circuit with known induction heads."""

import importlib.util
import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.text import TextConfig, Tokenizer, train_tokenizer

BESIDE = Path(__file__).parents[1] / "lens" / "test_induction.py"


@pytest.fixture
def induction() -> Any:
    return import_module("induction")


@pytest.fixture
def text() -> Any:
    return import_module("repeated_text")


def test_a_segment_repeats_to_the_end_of_the_document(text: Any) -> None:
    vocabulary = [f"w{index}" for index in range(97)]
    for seed in range(20):
        words = text.repeated(random.Random(seed), vocabulary)
        n = words[1:].index(words[0]) + 1
        assert text.SHORTEST <= n <= text.LONGEST
        assert len({*words[:n]}) == n
        assert words == [words[index % n] for index in range(text.LENGTH)]


def test_sentences_are_whole(text: Any) -> None:
    sentences = [["a"] * 7, ["b"] * 11]
    words = text.spoken(random.Random(0), sentences)
    assert text.LENGTH - 11 < len(words) <= text.LENGTH
    assert words.count("a") % 7 == words.count("b") % 11 == 0


def test_the_text_is_a_function_of_its_seed(text: Any, tmp_path: Path) -> None:
    path = text.write(tmp_path / "new", 60, 0.5, seed=1)
    lines = path.read_text().splitlines()
    assert lines == list(text.documents(60, 0.5, 1)) != list(text.documents(60, 0.5, 2))
    assert len(lines) == 60
    periodic = [words for words in map(str.split, lines) if words[1:].count(words[0]) and is_periodic(words)]
    assert 15 < len(periodic) < 45


def is_periodic(words: list[str]) -> bool:
    n = words[1:].index(words[0]) + 1
    return words[n:] == words[:-n]


def test_heads_are_chosen_by_their_scores(induction: Any) -> None:
    scores = {"a": [0.1, 0.2], "b": [0.9, 0.19]}
    assert induction.high(scores) == [("a", 1), ("b", 0)]
    assert induction.rest(scores, [("b", 0)]) == [("a", 0), ("a", 1), ("b", 1)]


def circuit(V: int, T: int) -> Any:
    """The model of tests/lens/test_induction.py: head 2 of layer 0 and head 1 of layer 1 copy, the others are zero."""
    spec = importlib.util.spec_from_file_location("circuits", BESIDE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.no_grad():
        return module.circuit(V, T)


def test_the_circuit_loses_everything_with_its_induction_head_and_nothing_with_others(
    induction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(induction, "ROWS", 7)
    monkeypatch.setattr(induction, "BEYOND", induction.HALF - 1)
    letters = [chr(ord("a") + index) for index in range(26)] + list("0123456789")
    tokenizer = train_tokenizer(["".join(letters)], TextConfig(kind="char", min_frequency=1))
    model = circuit(tokenizer.vocab_size, 1 + 2 * induction.HALF)
    result = induction.switch_off(model, tokenizer, seed=0)
    assert result["induction_heads"] == ["decoder.blocks.1.attn.1"]
    assert result["previous_token_heads"] == ["decoder.blocks.0.attn.2"]
    assert (result["n_other_heads"], result["n_switched_off"]) == (4, 1)
    assert result["gain"] > 5
    assert result["gain_beyond"] > 5  # the circuit copies from any distance
    assert result["removed_by_induction_heads"] == pytest.approx(1, abs=1e-3)
    assert result["removed_by_induction_heads_by_mean"] > 0.9
    # Without the previous-token head, the induction head attends to all earlier tokens alike: better than nothing.
    assert 0.1 < result["removed_by_previous_token_heads"] < 0.9
    assert result["removed_by_other_heads"] == result["removed_by_other_heads_by_mean"] == 0
    assert len(result["draws"]) == induction.DRAWS


def test_the_recipe_trains_in_miniature(
    induction: Any, text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocabulary is that of the grammar, and the measured rows fit into the model."""
    monkeypatch.setattr(induction, "EVERY", 1)
    monkeypatch.setattr(induction, "ROWS", 3)
    text.write(tmp_path, 200)
    handle, curve = induction.train(tmp_path, 5, ["train.steps=2", "train.validate_every=2", "model.d_model=16"])
    assert [point["step"] for point in curve] == [0, 1, 2]
    assert set(curve[0]) == {"step", "gain", "induction_score", "previous-token_score"}
    report = json.loads((tmp_path / "seed-5" / "report.json").read_text())
    assert report["seed"] == 5
    tokenizer = Tokenizer.load(tmp_path / "seed-5" / "tokenizer.json")
    rows = induction.repeated_rows(tokenizer, 0)
    assert rows.shape == (3, 1 + 2 * induction.HALF)
    assert rows.size(1) <= handle.model.config.max_length
    assert (rows[:, 1:] >= 4).all()
