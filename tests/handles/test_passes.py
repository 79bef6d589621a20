"""A caller looks before every pass of a network, and its error ends the work."""

from threading import Thread

import numpy as np
import pytest
import torch

from clearformer.data.sound import SoundConfig
from clearformer.handles.passes import in_passes, watched
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.transcriber import Transcriber
from clearformer.models.bert import Bert, BertConfig
from clearformer.models.speech_rnn import SpeechRNN, SpeechRNNConfig
from clearformer.text import TextConfig, train_tokenizer

TOKENIZER = train_tokenizer(["a b c"] * 2, TextConfig(kind="word", min_frequency=1))


class StopHere(Exception):
    """A test stops the work."""


def encoder() -> TextEncoder:
    sizes = {"n_layers": 1, "d_model": 14, "d_ff": 5, "n_heads": 2, "max_length": 67}
    return TextEncoder(Bert(BertConfig(vocab=TOKENIZER.vocab_size, **sizes)), TOKENIZER)


def test_a_look_before_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.handles.batching.BUDGET", {"cpu": 31})
    handle, looks = encoder(), list[int]()
    texts = ["a b c " * i for i in range(1, 8)]
    expected = handle.embed(texts)
    with watched(lambda: looks.append(1)):
        torch.testing.assert_close(handle.embed(texts), expected, rtol=0, atol=0)
    n = len(looks)
    assert n > 1
    assert torch.equal(handle.embed(texts), expected)
    assert len(looks) == n  # nobody looks any more

    def stop() -> None:
        looks.append(1)
        if len(looks) == n + 2:
            raise StopHere

    with pytest.raises(StopHere), watched(stop):
        handle.embed(texts)
    assert len(looks) == n + 2


def test_other_threads_are_not_watched() -> None:
    looks, seen = list[int](), list[int]()
    with watched(lambda: looks.append(1)):
        thread = Thread(target=lambda: seen.extend(in_passes([5, 7], 2)))
        thread.start()
        thread.join()
    assert (looks, seen) == ([], [5, 7])


def test_a_look_before_every_layer_of_a_recording() -> None:
    config = SoundConfig(rate=2000, n_mels=11, window=0.032, hop=0.016)
    model = SpeechRNN(SpeechRNNConfig(vocab=TOKENIZER.vocab_size, channels=11, n_layers=1, d_model=26))
    handle, looks = Transcriber(model, TOKENIZER, config), list[int]()
    samples = np.random.default_rng(0).integers(-999, 999, 5003).astype("int16")
    expected = handle.transcribe(samples)
    with watched(lambda: looks.append(1)):
        assert handle.transcribe(samples) == expected
    assert len(looks) > 3
    assert not any(module._forward_pre_hooks for module in model.modules())
    with pytest.raises(ZeroDivisionError), watched(lambda: len(looks) < 1 or 1 // 0):
        handle.transcribe(samples)
    assert not any(module._forward_pre_hooks for module in model.modules())
