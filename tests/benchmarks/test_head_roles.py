"""The places of subject, verb and object in the sentences that show what a head is for."""

import json
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from clearformer.bundled.grammar.lexicon import VERBS


@pytest.fixture
def roles() -> Any:
    return import_module("head_roles")


def test_places_are_those_of_the_tree(roles: Any) -> None:
    verbs = {form for verb in VERBS for form in verb.english.split()}
    sentences = roles.draw(100, Random(0))
    for sentence in sentences:
        words = sentence.text.lower().split()
        assert words[sentence.places["subject"]] in roles.NOUN_FORMS
        assert words[sentence.places["subject"] + 1] in ("who", "whom", "which")
        assert words[sentence.places["verb"]] in verbs
        assert words[sentence.places["object"]] in roles.NOUN_FORMS
    assert len({sentence.places["verb"] - sentence.places["subject"] for sentence in sentences}) > 3


def test_a_head_that_looks_at_the_subject(roles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 0 looks at the first word, head 1 from every word at the subject."""
    sentences = roles.draw(20, Random(0))
    subject = {sentence.text: sentence.places["subject"] for sentence in sentences}

    def patterns(_: Any, text: str) -> torch.Tensor:
        pattern = torch.zeros(2, len(text.split()) + 1, len(text.split()) + 1)
        pattern[0, :, 0] = pattern[1, :, subject[text]] = 1
        return pattern

    monkeypatch.setattr(roles, "patterns", patterns)
    results = roles.measure(None, sentences)
    found = results["roles"]["subject"]
    assert (found["head"], found["fraction"], found["other_heads"]) == (1, 1.0, 0.0)
    assert results["roles"]["object"]["fraction"] == 0
    assert results["nouns"]["most"] == 1


def test_the_figure_shows_every_role(roles: Any, tmp_path: Path) -> None:
    result = json.loads((roles.RESULTS / "head-roles.json").read_text(encoding="utf-8"))
    roles.plot(result, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for label in ("from the verb", "to the object", "constant distance"):
        assert label in text
