"""WAV files of every width, and sounds at another rate."""

import math
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data.resample import resample
from clearformer.data.wav import read_sound, read_wav
from clearformer.errors import DataError


def write(path: Path, data: bytes, width: int = 2, channels: int = 1, rate: int = 8000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_every_width_says_the_same(tmp_path: Path, width: int) -> None:
    steps = np.array([-128, -61, 0, 7, 127])
    if width == 1:
        data = (steps + 128).astype("uint8").tobytes()
    else:
        data = b"".join((int(step) << (8 * (width - 1))).to_bytes(width, "little", signed=True) for step in steps)
    samples, rate = read_wav(write(tmp_path / "a.wav", data, width))
    assert (samples.dtype, rate) == (np.float32, 8000)
    np.testing.assert_array_equal(samples, steps / 128)


def test_channels_are_averaged_and_16_bits_come_back_as_they_were(tmp_path: Path) -> None:
    left, right = np.array([100, -200, 300], "<i2"), np.array([300, -400, 301], "<i2")
    samples, _ = read_wav(write(tmp_path / "two.wav", np.stack([left, right], 1).tobytes(), channels=2))
    np.testing.assert_allclose(samples * 2**15, [200, -300, 300.5])
    every = np.arange(-(2**15), 2**15, 7).astype("<i2")
    np.testing.assert_array_equal(read_sound(write(tmp_path / "one.wav", every.tobytes()), 8000, 1), every)


@pytest.mark.parametrize(("old", "new"), [(16000, 8000), (8000, 16000), (11025, 8000), (44100, 8000), (8000, 7001)])
def test_a_tone_is_the_same_tone_at_another_rate(old: int, new: int) -> None:
    x = torch.sin(2 * torch.pi * 997 * torch.arange(old, dtype=torch.float64) / old + 1)
    y = resample(x, old, new)
    assert len(y) == new
    expected = torch.sin(2 * torch.pi * 997 * torch.arange(new, dtype=torch.float64) / new + 1)
    assert (y - expected)[200:-200].abs().max() < 2e-3


def test_what_the_new_rate_cannot_carry_is_left_out() -> None:
    x = torch.sin(2 * torch.pi * 5003 * torch.arange(16000, dtype=torch.float64) / 16000)
    assert resample(x, 16000, 8000)[200:-200].abs().max() < 1e-3
    assert resample(x, 8000, 8000) is x
    assert len(resample(x[:0], 16000, 8000)) == 0


@pytest.mark.parametrize(("old", "new"), [(2, 1), (3, 7), (441, 160), (197, 211), (22254, 16000), (131071, 8009)])
@pytest.mark.parametrize("n", [1, 97, 10007])
def test_the_sum_is_that_of_scipy(old: int, new: int, n: int) -> None:
    """With the equation's filter. Of the last two rates, a table of all filters would be gigabytes."""
    signal = pytest.importorskip("scipy.signal")
    x = np.random.default_rng(0).standard_normal(n)
    by = math.gcd(old, new)
    up, down, z = new // by, old // by, 16
    k = 0.95 * min(up, down)
    reach = math.ceil(z * up * down / k)
    t = k * np.arange(-reach, reach + 1) / (up * down)
    h = np.where(np.abs(t) < z, np.sinc(t) * np.cos(np.pi * t / (2 * z)) ** 2 * k / down, 0)
    expected = signal.resample_poly(x, up, down, window=h / up)
    np.testing.assert_allclose(resample(torch.from_numpy(x), old, new), expected, atol=1e-12)


def test_files_that_cannot_be_heard_are_said(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.wav", bytes(2000))
    cases = {
        "empty": b"",
        "text": b"this is no sound at all, only text",
        "cut": whole.read_bytes()[:1000],
        "head": whole.read_bytes()[:20],
        "fast": whole.read_bytes().replace(struct.pack("<I", 8000), struct.pack("<I", 2**32 - 5), 1),
        "float": whole.read_bytes().replace(b"\x10\0\0\0\1\0", b"\x10\0\0\0\3\0"),
    }
    told = {}
    for name, data in cases.items():
        (tmp_path / f"{name}.wav").write_bytes(data)
        with pytest.raises(DataError, match=rf"(?s){name}\.wav.*\nhint: ") as error:
            read_wav(tmp_path / f"{name}.wav")
        told[name] = error.value.message
    assert told["empty"].endswith("is empty")
    assert "is not an uncompressed WAV file" in told["text"]
    assert "is truncated: it contains 956 of 2,000 bytes" in told["cut"]
    assert "is truncated" in told["head"]
    assert "unknown format: 3" in told["float"]
    assert "16 bits at 4294967291 Hz are not supported" in told["fast"]
    with pytest.raises(DataError, match="does not exist"):
        read_wav(tmp_path / "none.wav")
    with pytest.raises(DataError, match=r"too short: 0\.125 s, but 0\.200 s are needed"):
        read_sound(whole, 8000, 1600)
