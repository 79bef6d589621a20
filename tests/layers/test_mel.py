"""Log-mel frames against Hugging Face's own, and what padding and loudness may not change."""

import numpy as np
import torch
from transformers.audio_utils import mel_filter_bank, spectrogram

from clearformer.layers.mel import LogMel, to_hertz, to_mel, triangles

RATE, M, WINDOW, HOP, N = 8000, 23, 200, 80, 1013


def ear() -> LogMel:
    """In float64, but for the numbers it holds: window and triangles are made in float32."""
    return LogMel(RATE, M, WINDOW, HOP).double()


def test_a_thousand_hertz_are_a_thousand_mel() -> None:
    assert abs(float(to_mel(torch.tensor(1000.0))) - 1000) < 0.1
    hertz = torch.tensor([0.0, 61.0, 3989.0], dtype=torch.float64)
    torch.testing.assert_close(to_hertz(to_mel(hertz)), hertz)


def test_triangles_are_hugging_faces() -> None:
    theirs = mel_filter_bank(129, M, 0.0, RATE / 2, RATE, norm=None, mel_scale="htk")
    np.testing.assert_allclose(triangles(M, 256, RATE).numpy(), theirs, atol=1e-9)
    assert (triangles(40, 256, RATE).sum(0) > 0).all()  # no band falls between two bins


def test_power_is_hugging_faces() -> None:
    wave = torch.randn(2, N, generator=torch.Generator().manual_seed(0)).double()
    window = np.zeros(256)
    window[28:228] = torch.hann_window(WINDOW).numpy()  # in the middle of 256
    filters = mel_filter_bank(129, M, 0.0, RATE / 2, RATE, norm=None, mel_scale="htk")
    ours = ear().power(wave)
    for row in (0, 1):
        theirs = spectrogram(
            wave[row].numpy(),
            window,
            256,
            HOP,
            power=2.0,
            pad_mode="constant",
            mel_filters=filters,
            mel_floor=0,
        )
        # A sum of powers, none negative, by triangles rounded to float32: wrong by as much as one of them may be.
        np.testing.assert_allclose(ours[row].numpy(), theirs.T, rtol=torch.finfo(torch.float32).eps)


def test_scaled_by_hand() -> None:
    wave = torch.randn(1, N, generator=torch.Generator().manual_seed(0)).double()
    frames, lengths = ear()(wave, torch.tensor([N]))
    assert lengths.tolist() == [1 + N // HOP]
    assert frames.shape == (1, 1 + N // HOP, M)
    power = ear().power(wave)[0]
    torch.testing.assert_close(frames[0], 1 + (power / power.max()).log10() / 3)
    assert frames.max() == 1


def test_nothing_is_quieter_than_silence() -> None:
    wave = torch.cat([torch.sin(torch.arange(800.0)), 1e-5 * torch.randn(800), torch.zeros(800)])[None].double()
    frames = ear()(wave, torch.tensor([2400]))[0][0]
    assert (frames[13:] == -1).all()
    assert (ear()(torch.zeros(1, N).double(), torch.tensor([N]))[0] == -1).all()


def test_padding_and_loudness_change_nothing() -> None:
    torch.manual_seed(0)
    waves, lengths = torch.randn(3, N).double(), torch.tensor([N, 307, 601])
    waves[torch.arange(N) >= lengths[:, None]] = 0
    frames, counts = ear()(waves, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = ear()(waves[row : row + 1, :n], lengths[row : row + 1])[0][0]
        torch.testing.assert_close(frames[row, : counts[row]], alone)
        assert not frames[row, counts[row] :].any()
    torch.testing.assert_close(ear()(waves / 50, lengths)[0], frames)
