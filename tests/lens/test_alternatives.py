"""Alternatives by step, and the tree of beam search."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.errors import ConfigError
from clearformer.lens.alternatives import alternatives
from clearformer.lens.beam_tree import beam_tree
from clearformer.lens.reading import read
from clearformer.plots import plot_alternatives, plot_beam_tree

from .streams import LANGUAGE_MODELS, MODERATE, TEXT, TRANSLATORS, small_handle


@pytest.fixture(scope="module")
def translator() -> Any:
    return clearformer.load()


@pytest.mark.parametrize("name", [*LANGUAGE_MODELS, *MODERATE, "bert"])
def test_ranks_and_probabilities_are_those_of_the_logits(name: str) -> None:
    reading = read(small_handle(name), TEXT)
    values = alternatives(reading, top=3)
    with torch.no_grad():
        rows = reading.model(reading.batch)[0].softmax(-1)
    assert reading.ids is not None
    assert len(values["chosen"]) == len(values["tokens"]) == len(rows)
    for row, token, chosen, listed in zip(rows, reading.ids, values["chosen"], values["probabilities"]):
        assert listed == pytest.approx(row.sort(descending=True).values[:3].tolist(), rel=1e-6)
        if token is None:
            assert chosen is None
        else:
            order = row.argsort(descending=True).tolist()
            assert chosen["rank"] == order.index(token) + 1
            assert chosen["probability"] == pytest.approx(float(row[token]), rel=1e-5)
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_the_tokens_of_a_text_add_up_to_its_log_probability(name: str) -> None:
    handle: Any = small_handle(name)
    assert alternatives(read(handle, TEXT))["logprob"] == pytest.approx(handle.score(TEXT).logprob, rel=1e-5)


def test_the_tokens_of_a_translation_add_up_to_its_log_probability(translator: Any, tmp_path: Path) -> None:
    source, target = "I am a good boy.", "Je suis un petit garçon."
    values = alternatives(read(translator, source, target))
    assert values["logprob"] == pytest.approx(translator.score(source, target), rel=1e-5)
    [wrong] = [one for one in values["chosen"] if one["rank"] > 1]
    assert "petit" in wrong["token"]
    assert plot_alternatives(values, tmp_path / "a.svg").exists()


def test_a_classifier_has_no_alternatives() -> None:
    with pytest.raises(ConfigError, match="does not predict tokens"):
        alternatives(read(small_handle("classifier"), TEXT))


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("text", ["I am a good boy.", "Where is the station?", "A man rides a bike in the street."])
def test_the_best_leaf_is_the_translation(translator: Any, text: str, beam: int) -> None:
    values = beam_tree(translator, text, beam)
    [candidates] = translator.candidates([text], n=beam, beam=beam)
    assert values["results"][0]["text"] == translator.translate(text, beam=beam)
    assert [(one["text"], one["score"]) for one in values["results"]] == [(one.text, one.score) for one in candidates]
    nodes = {node["id"]: node for step in values["steps"] for node in step}
    pieces = [nodes[i]["token"] for i in values["best"]]
    assert pieces == [*translator.target_tokenizer.pieces(candidates[0].tokens), "<eos>"]
    assert nodes[values["best"][-1]]["score"] == pytest.approx(candidates[0].score)
    assert nodes[values["best"][-1]]["fate"] == "finished"


@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_step_extends_what_the_one_before_kept(name: str, tmp_path: Path) -> None:
    handle: Any = small_handle(name)
    values = beam_tree(handle, TEXT)
    assert values["results"][0]["text"] == handle.translate(TEXT)
    before: set[Any] = {None}
    for step in values["steps"]:
        assert {node["parent"] for node in step} <= before
        assert [node["logprob"] for node in step] == sorted((node["logprob"] for node in step), reverse=True)
        assert len([node for node in step if node["fate"] == "kept"]) <= values["beam"]
        before = {node["id"] for node in step if node["fate"] == "kept"}
    nodes = {node["id"]: node for step in values["steps"] for node in step}
    for path in (values["best"],):
        assert [nodes[child]["parent"] for child in path] == [None, *path[:-1]]
    assert all(math.isfinite(node["score"]) for node in nodes.values())
    assert "dropped" in {node["fate"] for node in nodes.values()}
    assert plot_beam_tree(values, tmp_path / "tree.svg").exists()


def test_only_a_translator_has_a_tree() -> None:
    with pytest.raises(ConfigError, match="needs a translator"):
        beam_tree(small_handle("gpt"), TEXT)
