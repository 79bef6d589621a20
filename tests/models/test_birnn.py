"""A network that reads both ways, against torch's own, and what its two directions end with."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from clearformer.data.batch import EncoderBatch
from clearformer.errors import ConfigError
from clearformer.models.birnn import BiRNN, BiRNNConfig
from clearformer.models.classifier import Classifier, ClassifierConfig

B, T, V, D, E = 3, 7, 23, 11, 5
LENGTHS = torch.tensor([4, 7, 2])


def batch_of() -> EncoderBatch:
    torch.manual_seed(1)
    return EncoderBatch(torch.randint(V, (B, T)), torch.arange(T) < LENGTHS[:, None])


def sizes(**changes: Any) -> dict[str, Any]:
    return {"kind": "birnn", "vocab": V, "d_model": 2 * D, "d_embedding": E, "dropout": 0.0, **changes}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_many_to_one_judges_the_last_state_of_each_direction(cell: str, n_layers: int) -> None:
    torch.manual_seed(0)
    config = ClassifierConfig(base=sizes(cell=cell, n_layers=n_layers), pooling="ends", dropout=0.0, n_classes=5)
    ours, batch = Classifier(config).double(), batch_of()
    theirs = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](E, D, n_layers, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(ours.base.layers.weights.state_dict())
    x = ours.base.embedding(batch.tokens)
    _, last = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    h = last[0] if cell == "lstm" else last  # (L · 2, B, D)
    expected = ours.classifier(torch.cat([h[-2], h[-1]], dim=1))
    torch.testing.assert_close(ours(batch), expected, atol=1e-12, rtol=0)


def test_words_on_both_sides_matter_and_padding_does_not() -> None:
    torch.manual_seed(0)
    model, batch = BiRNN(BiRNNConfig(**sizes())).double(), batch_of()
    logits = model(batch)
    assert logits.shape == (B, T, V)
    torch.testing.assert_close(logits[:1, :4], model(EncoderBatch(batch.tokens[:1, :4])))
    changed = batch.tokens.clone()
    changed[1, 3] = (changed[1, 3] + 1) % V
    assert (model(EncoderBatch(changed, batch.mask)) != logits)[1].any(1).all()


def test_a_base_says_no_words() -> None:
    base = Classifier(ClassifierConfig(base=sizes())).base
    assert base.word_head is None
    with pytest.raises(ConfigError, match="has no word_head"):
        base.head(torch.zeros(2 * D))


def test_two_directions_share_the_width() -> None:
    with pytest.raises(ConfigError, match="multiple of 2"):
        BiRNNConfig.parse({"d_model": 7}, "[model]")
