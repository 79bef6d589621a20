"""Sound files of every width and format, and sounds at another rate."""

import math
import struct
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data import audio
from clearformer.data.audio import SoundBytes, measure_audio, read_audio, read_sound
from clearformer.data.resample import resample
from clearformer.errors import DataError, MachineError


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
    samples, rate = read_audio(write(tmp_path / "a.wav", data, width))
    assert (samples.dtype, rate) == (np.float32, 8000)
    np.testing.assert_array_equal(samples, steps / 128)


def test_channels_are_averaged_and_16_bits_come_back_as_they_were(tmp_path: Path) -> None:
    left, right = np.array([100, -200, 300], "<i2"), np.array([300, -400, 301], "<i2")
    samples, _ = read_audio(write(tmp_path / "two.wav", np.stack([left, right], 1).tobytes(), channels=2))
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
        "slow": whole.read_bytes().replace(struct.pack("<I", 8000), struct.pack("<I", 1), 1),
        "huge": whole.read_bytes().replace(struct.pack("<I", 2000), struct.pack("<I", 2**32 - 2), 1),
    }
    told = {}
    for name, data in cases.items():
        (tmp_path / f"{name}.wav").write_bytes(data)
        with pytest.raises(DataError, match=rf"(?s){name}\.wav.*\nhint: ") as error:
            read_audio(tmp_path / f"{name}.wav")
        told[name] = error.value.message
    assert told["empty"].endswith("is empty")
    assert "is not a recording in a supported format" in told["text"]
    assert "is truncated: it contains 956 of 2,000 bytes" in told["cut"]
    assert "is truncated" in told["head"]
    assert "is truncated: it contains 2,000 of 4,294,967,294 bytes" in told["huge"]
    assert "a sample rate of 4,294,967,291 Hz is not supported" in told["fast"]
    assert "a sample rate of 1 Hz is not supported" in told["slow"]
    with pytest.raises(DataError, match="does not exist"):
        read_audio(tmp_path / "none.wav")
    with pytest.raises(DataError, match=r"too short: 0\.125 s, but 0\.200 s are needed"):
        read_sound(whole, 8000, 1600)


TONE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000) * np.hanning(16000)
# The largest error of a sample: half a step of the integers, or for OGG and MP3 what their coders leave of a loud tone.
FORMATS = [
    ("wav", "PCM_U8", 2**-7),
    ("wav", "PCM_16", 2**-15),
    ("wav", "PCM_24", 2**-23),
    ("wav", "PCM_32", 2**-24),
    ("wav", "FLOAT", 2**-24),
    ("wav", "DOUBLE", 2**-24),
    ("wav", "ULAW", 2**-5),
    ("flac", "PCM_16", 2**-15),
    ("flac", "PCM_24", 2**-23),
    ("ogg", "VORBIS", 0.05),
    ("ogg", "OPUS", 0.05),
    ("mp3", "MPEG_LAYER_III", 0.05),
    ("aiff", "PCM_16", 2**-15),
]


@pytest.mark.parametrize(("ending", "subtype", "bound"), FORMATS)
def test_every_format_gives_the_same_tone(tmp_path: Path, ending: str, subtype: str, bound: float) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / f"tone.{ending}", TONE, 16000, subtype=subtype)
    (tmp_path / f"tone.{ending}").rename(tmp_path / "tone.sound")  # the content decides, not the name
    samples, rate = read_audio(tmp_path / "tone.sound")
    assert rate == 16000
    assert abs(len(samples) - 16000) < 2500 if ending == "mp3" else len(samples) == 16000  # MP3 pads its frames
    start = int(np.argmax(np.correlate(samples, TONE.astype("float32"), "valid"))) if len(samples) > 16000 else 0
    heard = samples[start : start + 16000]
    assert np.abs(heard - TONE[: len(heard)]).max() <= bound
    seconds, rate = measure_audio(tmp_path / "tone.sound")
    assert (seconds, rate) == (len(samples) / 16000, 16000)


def test_16_bits_need_no_library_and_other_formats_name_the_extra(tmp_path: Path, monkeypatch) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.flac", TONE, 16000)
    soundfile.write(tmp_path / "a.wav", TONE, 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "b.wav", TONE, 16000, subtype="PCM_16")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert len(read_audio(tmp_path / "b.wav")[0]) == 16000
    for name in ("a.flac", "a.wav"):
        with pytest.raises(MachineError, match=rf"{name}: reading .* needs soundfile.*\nhint: pip install .*\[audio\]"):
            read_audio(tmp_path / name)


def test_damaged_files_of_other_formats_are_one_sentence(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for ending, subtype in (("flac", "PCM_16"), ("ogg", "VORBIS"), ("mp3", "MPEG_LAYER_III"), ("wav", "FLOAT")):
        whole = tmp_path / f"whole.{ending}"
        soundfile.write(whole, TONE, 16000, subtype=subtype)
        data = whole.read_bytes()
        for name, part in (("head", data[:30]), ("cut", data[: len(data) // 2]), ("zeros", data[:60] + bytes(4000))):
            path = tmp_path / f"{name}.{ending}"
            path.write_bytes(part)
            with pytest.raises(DataError, match=rf"{name}\.{ending} is (damaged|truncated).*\nhint: "):
                read_audio(path)
    with pytest.raises(DataError, match=r"cut\.wav is truncated: it contains .* of 64,000 bytes"):
        read_audio(tmp_path / "cut.wav")
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan), 16000, subtype="FLOAT")
    with pytest.raises(DataError, match="samples that are not finite numbers"):
        read_audio(tmp_path / "nan.wav")


def test_a_small_file_cannot_fill_the_memory(tmp_path: Path, monkeypatch) -> None:
    """A FLAC file of silence is tiny; it is decoded a block at a time, and no further than MAX_SAMPLES."""
    soundfile = pytest.importorskip("soundfile")
    monkeypatch.setattr(audio, "MAX_SAMPLES", 2**20)
    soundfile.write(tmp_path / "long.flac", np.zeros(2**22, "int16"), 8000)
    assert (tmp_path / "long.flac").stat().st_size < 2**17
    n_read, real = [], soundfile.SoundFile.read
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda self, n, **how: n_read.append(n) or real(self, n, **how))
    with pytest.raises(DataError, match=r"long\.flac is too long: more than 1,048,576 samples, 0\.0 h at 8,000 Hz"):
        read_audio(tmp_path / "long.flac")
    assert sum(n_read) <= 2**20 + audio.BLOCK
    write(tmp_path / "short.wav", bytes(2 * 2**19), rate=1000)
    with pytest.raises(DataError, match=r"short\.wav is too long"):  # at the rate of the model
        read_sound(tmp_path / "short.wav", 16000, 1)


@pytest.mark.parametrize(("old", "new"), [(8000, 16000), (11025, 16000), (22050, 16000), (44100, 16000), (48000, 8000)])
def test_the_spectrum_agrees_with_soxr(old: int, new: int) -> None:
    """The filter is a sinc of Z = 16 crossings per side under a cos² (Hann) window, cut off at 0.95 of Nyquist.

    The transform of that window has a main lobe of half-width 2 / 2Z, which is 1/8 of the cutoff frequency: the filter
    goes from 1 to 0 between 7/8 and 9/8 of the cutoff. Outside, a Hann-windowed sinc is within 0.0063 (−44 dB; the
    largest step of the integral of the window's transform beyond its main lobe) of 1 and of 0. The signal is periodic
    with one second and of tones with amplitude 1, so the DFT of one second has no leakage. Up to 7/8 · 0.95 of the
    Nyquist frequency, a bin therefore differs from soxr's by one such error of its own tone, plus one of any tone
    beyond 9/8 · 0.95 that is aliased onto it. Between 1 and 9/8 · 0.95, aliases land above 0.93, outside this band.
    """
    soxr = pytest.importorskip("soxr")
    rng = np.random.default_rng(0)
    t = np.arange(3 * old) / old
    x = sum(np.cos(2 * np.pi * (f * t + rng.uniform())) for f in range(3, old // 2, 61))
    ours = resample(torch.from_numpy(x), old, new).numpy()
    theirs = soxr.resample(x, old, new, quality="VHQ")
    spectra = [np.fft.rfft(y[new : 2 * new]) / (new / 2) for y in (ours, theirs)]
    band = int(7 / 8 * 0.95 * min(old, new) / 2)
    error = np.abs(spectra[0] - spectra[1])[:band]
    assert np.abs(spectra[1][3:band:61]).min() > 0.999  # the tones are there
    assert error.max() < 2 * 0.0063
    assert np.sqrt((error**2).sum() / (np.abs(spectra[1][:band]) ** 2).sum()) < 0.002  # −54 dB on the whole


def test_objects_are_recordings_too(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "tone.wav", TONE, 16000)
    expected = read_sound(tmp_path / "tone.wav", 8000, 1)
    kept = (TONE * 2**15).astype("int16")
    assert read_sound(kept, 8000, 1) is kept
    array, rate = soundfile.read(tmp_path / "tone.wav")
    for sound in (
        (array, rate),
        {"array": array, "sampling_rate": rate},
        (np.stack([array, array], 1), rate),
        (torch.tensor(np.stack([array, array])), rate),
        ((array * 2**31).astype("int32"), rate),
    ):
        assert np.abs(read_sound(sound, 8000, 1).astype(int) - expected).max() <= 1
    for wrong in (
        ("a", 5),
        (array, "a"),
        [array, 5],
        None,
        {"bytes": b""},
        np.zeros((2, 2, 2)),
        (np.array([np.nan]), 8000),
    ):
        with pytest.raises(DataError, match="recording"):
            read_sound(wrong, 8000, 1)
    with pytest.raises(DataError, match="a sample rate of 1 Hz"):
        read_sound((array, 1), 8000, 1)


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "AIFF"])
def test_bytes_are_read_as_the_file_that_they_come_from(tmp_path: Path, format: str) -> None:
    soundfile = pytest.importorskip("soundfile")
    path, samples = tmp_path / "a", np.sin(np.arange(4001) / 7).astype("float32") / 2
    soundfile.write(path, samples, 8000, format=format)
    expected, rate = read_audio(path)
    body = SoundBytes(path.read_bytes())
    for _ in range(2):  # also a second time
        found, found_rate = read_audio(body)
        np.testing.assert_array_equal(found, expected)
        assert found_rate == rate == 8000


def test_bytes_have_a_name_in_messages(tmp_path: Path) -> None:
    body = write(tmp_path / "a.wav", bytes(4000)).read_bytes()
    for bad, match in (
        (b"", "the recording is empty"),
        (b"plain text", "the recording is not a recording in a supported format"),
        (body[:-100], "the recording is truncated: it contains 3,900 of 4,000 bytes"),
    ):
        with pytest.raises(DataError, match=match):
            read_audio(SoundBytes(bad))


def test_a_recording_that_is_too_long_is_not_decoded_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio, "BLOCK", 800)
    path = write(tmp_path / "a.wav", bytes(2 * 8000))  # one second
    assert len(read_audio(path, 1.0)[0]) == 8000
    blocks = []
    monkeypatch.setattr(audio, "to_floats", lambda data, width: blocks.append(data) or np.zeros(len(data) // 2, "f"))
    with pytest.raises(DataError, match=r"a.wav is longer than 0.25 s"):
        read_audio(path, 0.25)
    assert len(blocks) == 3
