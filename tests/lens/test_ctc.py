"""The CTC output of a speech model over a recording, against its transcript."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.data.recordings import pad_sounds
from clearformer.errors import ConfigError
from clearformer.lens.ctc import envelope, shown_tokens
from clearformer.verbs.lens import view

from .small_handles import TEXT, small

N = 4001  # samples at 8 kHz: 51 frames of 10 ms, 26 after a stride of 2


@pytest.fixture
def recording(tmp_path: Path) -> str:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.random.default_rng(0).integers(-9999, 9999, N, "int16").tobytes())
    return str(tmp_path / "a.wav")


def sharp(kind: str) -> Any:
    """A random model that is sure of what it hears."""
    model = small(kind)
    torch.nn.init.normal_(model.model.scores.weight, std=3, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("kind", ["speech-rnn", "speech-transformer"])
def test_spikes_spell_the_transcript(kind: str, recording: str) -> None:
    model = sharp(kind)
    values = view("ctc", model, recording)
    json.dumps(values)
    assert values["transcript"] == model.transcribe(recording).text
    assert [one["word"] for one in values["words"]] == values["transcript"].split()
    logits, n = model.logits(pad_sounds([model.open(recording)]))
    probabilities = logits[0].softmax(-1)
    assert len(values["blank"]) == int(n) == 26
    torch.testing.assert_close(torch.tensor(values["blank"]), probabilities[:, -1])
    assert values["spikes"]
    for spike in values["spikes"]:
        row = values["probabilities"][values["tokens"].index(spike["token"])]
        assert max(row[spike["start"] : spike["end"]]) == pytest.approx(spike["probability"])
        assert all(max(row[t], 0) >= values["blank"][t] for t in range(spike["start"], spike["end"]))


def test_the_recording_is_shown_above(recording: str) -> None:
    values = view("ctc", sharp("speech-rnn"), recording)
    assert values["seconds"] == pytest.approx(N / 8000)
    assert (len(values["mel"]), len(values["mel"][0])) == (7, 1 + N // 80)
    assert values["seconds_per_frame"] == pytest.approx(0.02)
    assert len(values["wave"]["low"]) == 1000


def test_envelope_by_hand() -> None:
    samples = np.array([0, 16384, -16384] * 1000, "int16")
    low, high = envelope(samples).values()
    assert (low[0], high[0], len(low)) == (-0.5, 0.5, 1000)
    assert envelope(np.array([8192], "int16")) == {"low": [0.25], "high": [0.25]}


def test_tokens_are_shown_in_the_order_of_their_spikes() -> None:
    p = torch.full((5, 8), 0.001)
    p[4, 2], p[1, 5], p[2, 6], p[0, 7] = 0.9, 0.8, 0.04, 0.99  # 6 is too small, 7 is the blank
    assert shown_tokens(p) == [5, 2]
    assert len(shown_tokens(torch.full((5, 8), 0.001))) == 7  # a model that is never sure: all equal


@pytest.mark.parametrize("kind", ["svg", "png", "html"])
def test_it_is_drawn(tmp_path: Path, recording: str, kind: str) -> None:
    view("ctc", sharp("speech-transformer"), recording, tmp_path / f"a.{kind}")
    assert (tmp_path / f"a.{kind}").stat().st_size > 10_000


def test_other_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="a language model, which has no CTC output"):
        view("ctc", small("gpt"), TEXT)
