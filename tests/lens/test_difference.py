"""How far two models are apart: numbers worked by hand, and what can be compared at all."""

import pytest
import torch

from clearformer.lens.difference import compared_layers, layer_differences, token_probabilities
from clearformer.lens.patches import scale
from clearformer.lens.reading import read

from .small_handles import TEXT, small

KINDS = ["gpt", "transformer", "seq2seq", "rnn-lm", "bert", "birnn-of-classifier", "textcnn-of-classifier"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_layers_to_compare(kind: str) -> None:
    reading = read(small(kind), TEXT)
    names = compared_layers(reading)
    _, look = reading.look(keep=names)
    rows = layer_differences(look, look, names)
    assert rows
    assert {row["difference"] for row in rows} == {0.0}


def test_a_scaled_activation_differs_by_its_factor() -> None:
    reading = read(small("gpt"), TEXT)
    name = "decoder.blocks.2.mlp_out"
    _, first = reading.look(keep=[name])
    _, second = reading.look(keep=[name], put={name: scale(1.5)})
    [row] = layer_differences(first, second, [name])
    assert row["difference"] == pytest.approx(0.5)
    assert row["norms"][1] == pytest.approx(1.5 * row["norms"][0])


def test_other_shapes_are_left_out() -> None:
    looks = [read(small("gpt", d_model=width), TEXT).look(keep=["*.resid_post"])[1] for width in (14, 28)]
    assert layer_differences(*looks, ["decoder.blocks.0.resid_post"]) == []


def test_token_probabilities_add_up_to_the_score() -> None:
    handle = small("gpt")
    reading = read(handle, TEXT)
    logits, _ = reading.look()
    rows = token_probabilities(reading, logits)
    assert rows is not None
    ids = handle.encode(TEXT)
    logprobs = logits[0].log_softmax(-1)
    assert [row["token"] for row in rows] == TEXT.split()[1:]
    assert [row["logprob"] for row in rows] == pytest.approx([float(logprobs[t, i]) for t, i in enumerate(ids[1:])])
    assert [row["rank"] for row in rows] == [
        1 + int((logits[0, t] > logits[0, t, i]).sum()) for t, i in enumerate(ids[1:])
    ]
    classifier = read(small("bert-of-classifier"), TEXT)
    assert token_probabilities(classifier, torch.zeros(1, 3)) is None
