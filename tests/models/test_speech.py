"""The models of speech: padding may not matter, and the recurrent one is torch's own LSTM after the convolutions."""

from math import prod
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearformer.data.batch import SoundBatch
from clearformer.models.speech_rnn import SpeechRNN, SpeechRNNConfig
from clearformer.models.speech_transformer import SpeechTransformer, SpeechTransformerConfig

B, T, M, V = 3, 29, 7, 11
LENGTHS = torch.tensor([29, 13, 18])


def rnn(*strides: int, **settings: Any) -> SpeechRNN:
    torch.manual_seed(0)
    return (
        SpeechRNN(SpeechRNNConfig(vocab=V, channels=M, d_model=10, strides=strides or (2,), **settings)).double().eval()
    )


def transformer(*strides: int) -> SpeechTransformer:
    torch.manual_seed(0)
    sizes = {"n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5}
    return (
        SpeechTransformer(SpeechTransformerConfig(vocab=V, channels=M, strides=strides or (2,), **sizes))
        .double()
        .eval()
    )


def batch() -> SoundBatch:
    frames = torch.randn(B, T, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return SoundBatch(frames * (torch.arange(T) < LENGTHS[:, None])[:, :, None], LENGTHS)


@pytest.mark.parametrize("strides", [(1,), (2,), (3, 2)])
@pytest.mark.parametrize("build", [rnn, transformer])
def test_a_padded_row_says_what_it_says_alone(build: Any, strides: tuple[int, ...]) -> None:
    model, rows = build(*strides), batch()
    logits, lengths = model(rows), model.shortened(LENGTHS)
    assert lengths.tolist() == [-(-n // prod(strides)) for n in LENGTHS.tolist()]
    assert logits.shape == (B, lengths.max(), V + 1)
    for row, n in enumerate(LENGTHS.tolist()):
        alone = model(SoundBatch(rows.sounds[row : row + 1, :n], LENGTHS[row : row + 1]))
        torch.testing.assert_close(logits[row, : lengths[row]], alone[0])


@pytest.mark.parametrize("build", [rnn, transformer])
def test_both_ends_of_a_recording_are_heard_at_its_middle(build: Any) -> None:
    model, rows = build(), batch()
    before = model(rows)[0, 7]
    for place in (0, T - 1):
        rows.sounds[0, place] += 1
        after = model(rows)[0, 7]
        assert not torch.allclose(after, before)
        before = after


def test_the_recurrence_is_torchs() -> None:
    model = rnn(n_layers=2)
    theirs = nn.LSTM(10, 5, 2, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(
        {name.removeprefix("layers.weights."): p for name, p in model.state_dict().items() if "_l" in name}
    )
    x, lengths = model.subsample(batch().sounds, LENGTHS)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    torch.testing.assert_close(model.hidden(batch()), expected)
