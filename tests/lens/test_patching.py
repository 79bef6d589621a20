"""Activations of one text put into the run on another."""

from typing import Any

import pytest
import torch

import clearformer
from clearformer.errors import ConfigError, DataError
from clearformer.lens.patches import replace
from clearformer.lens.patching import Contrast, contrast_of, partners, patching, stacks_of
from clearformer.lens.reading import Reading, read

from ..models.test_contract import batch_for, build

STATE = "decoder.blocks.1.resid_post"


def two_readings(name: str) -> list[Reading]:
    model = build(name).eval()
    batch: Any = batch_for(model)
    names = [f"t{i}" for i in range(5)]
    rows = [batch.map(lambda tensor, i=i: tensor[i : i + 1]) for i in range(2)]
    spell = lambda ids: [f"<{i}>" for i in ids]  # noqa: E731
    return [Reading(name, model, row, model, names, names, spell=spell) for row in rows]


@torch.no_grad()
def test_replacing_everything_gives_the_logits_of_the_other_run() -> None:
    """Bit by bit, at every layer of a stack; an encoder alone, for a translator that reads the same target."""
    translator = clearformer.load()
    for reading, other in (
        two_readings("gpt"),
        [read(translator, text, "La voiture est ici.") for text in ("The car is here.", "The house is here.")],
    ):
        goal, states = other.look(keep=["*.resid_*"])
        stack = next(iter(stacks_of(reading).values()))
        assert not reading.look()[0].equal(goal)
        for name in stack:
            n = states[name].size(1)
            assert reading.look(put={name: replace(states[name], at=range(n))})[0].equal(goal)


@torch.no_grad()
def test_the_restored_part_by_hand() -> None:
    reading, other = two_readings("gpt")
    values = patching(reading, other)
    [panel] = values["panels"]
    goal, states = other.look(keep=["*.resid_*"])
    logits, _ = reading.look()
    at, a, b = 4, int(logits[0, 4].argmax()), int(goal[0, 4].argmax())
    assert values["position"] == at
    assert [values[key]["prediction"] for key in ("text", "other")] == [f"'<{a}>'", f"'<{b}>'"]
    changed, _ = reading.look(put={STATE: replace(states[STATE], at=[2])})
    difference = [float(x[0, at, b] - x[0, at, a]) for x in (logits, changed, goal)]
    expected = (difference[1] - difference[0]) / (difference[2] - difference[0])
    assert panel["rows"][2] == "1"
    assert abs(panel["values"][2][2] - expected) < 1e-4
    last = torch.tensor(panel["values"][-1])  # after it, no layer mixes positions
    torch.testing.assert_close(last, torch.tensor([0.0, 0, 0, 0, 1]), atol=1e-5, rtol=0)


def test_a_translator_carries_the_difference_at_the_changed_word() -> None:
    translator = clearformer.load()
    texts = "The red car is here.", "The red house is here."
    values = patching(*(read(translator, text, "La voiture rouge est ici.") for text in texts))
    encoder, decoder = values["panels"]
    assert encoder["columns"][2] == "▁car←▁house"
    table = torch.tensor(encoder["values"])
    torch.testing.assert_close(table[0], torch.eye(7)[2], atol=1e-4, rtol=0)  # only this input differs
    assert table[:, 2].min() > 0.9
    assert decoder["columns"][0] == "<bos>"
    assert values["text"]["logit_difference"] < 0 < values["other"]["logit_difference"]


def test_the_first_difference_of_a_translation_and_the_last_of_a_text() -> None:
    reading, _ = two_readings("gpt")
    same, other = torch.eye(5)[None], torch.eye(5)[None, [0, 2, 1, 4, 4]]
    assert contrast_of(reading, same, other) == Contrast(3, 3, 4)
    translation, _ = two_readings("transformer")
    assert contrast_of(translation, same, other) == Contrast(1, 1, 2)
    assert Contrast(1, 1, 2).of(other) == 1.0
    with pytest.raises(DataError, match="predicts the same for both texts"):
        contrast_of(reading, same, same)


def test_positions_correspond_from_both_ends() -> None:
    short, long = ["the", "man", "pulled", "a", "cart"], ["the", "man", "po", "oled", "a", "cart"]
    assert partners(short, long) == [0, 1, 3, 4, 5]
    assert partners(long, short) == [0, 1, None, 2, 3, 4]
    assert partners(["a", "b", "c"], ["a", "x", "c"]) == [0, 1, 2]
    assert partners(["a", "b"], ["a", "b", "b"]) == [0, 1]
    assert partners(["a", "b", "b"], ["a", "b"]) == [0, 1, None]
    assert partners([], ["a"]) == []


@torch.no_grad()
def test_pulled_and_pooled() -> None:
    """The pair of the notes, whose words have different numbers of tokens."""
    model = clearformer.load("en-small")
    texts = "The man pulled a cart", "The man pooled a cart"
    for one, two in (texts, texts[::-1]):
        reading, other = read(model, one), read(model, two)
        assert len(reading.target) != len(other.target)
        values = patching(reading, other)
        [panel] = values["panels"]
        table, at = torch.tensor(panel["values"]), values["position"]
        assert table.shape[1] == len(panel["columns"]) == len(reading.target)
        where = partners(reading.target, other.target)
        expected = torch.zeros(len(where))
        expected[at] = 1.0
        torch.testing.assert_close(table[-1], expected, atol=1e-4, rtol=0)  # after it, no layer mixes positions
        before = [i for i, partner in enumerate(where) if partner == i and i < at]
        assert table[0, before[0]] == pytest.approx(0, abs=1e-5)  # the same input in both
        if None in where:
            assert table[:, where.index(None)].abs().max() == 0


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="birnn has no residual stream"):
        stacks_of(two_readings("birnn")[0])
