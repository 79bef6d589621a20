"""Read recordings: uncompressed WAV files with the standard library, other formats with the library soundfile.

    read_audio(Path("call.flac"))               samples (N,) float32 in [−1, 1], averaged over channels, and their rate
    read_sound(Path("call.mp3"), 16000, 400)    samples (N,) int16 at 16 kHz, at least 400 of them
    read_sound((samples, 44100), 16000, 400)    the same from an array and its rate, as soundfile.read returns them
    read_audio(SoundBytes(body), 60)            the contents of a file, of at most 60 seconds

The first bytes determine the format, not the ending of the name. Nothing is allocated because a header asks for it:
samples are read in blocks and counted, up to MAX_SAMPLES.
"""

import re
import struct
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from clearformer.data.resample import resample
from clearformer.data.sources import require_file
from clearformer.errors import DataError, MachineError
from clearformer.wording import count

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif")
MAGIC = {
    b"RIFF": "WAV",
    b"RIFX": "WAV",
    b"RF64": "WAV",
    b"fLaC": "FLAC",
    b"OggS": "OGG",
    b"ID3": "MP3",
    b"FORM": "AIFF",
}
MIN_RATE, MAX_RATE = 1000, 2**20  # samples per second; another rate means that the header is damaged
MAX_SAMPLES = 2**26  # per channel: 1.1 hours at 16 kHz, 256 MiB as float32
BLOCK = 2**18  # samples read at a time, all channels together
AGAIN = "record or copy it again"
CONVERT = "convert it, for example: ffmpeg -i in.wav -c:a pcm_s16le out.wav"


class SoundBytes(BytesIO):
    """The contents of a sound file that has no path, and its name in messages."""

    def __str__(self) -> str:
        return "the recording"


SoundFile = Path | SoundBytes


class Stream(NamedTuple):
    """An open recording. `n_frames` is what the header says, None if it does not; a frame has a sample per channel."""

    rate: int
    n_channels: int
    n_frames: int | None
    frame_bytes: int | None
    """Bytes per frame if the format is uncompressed."""
    read: Callable[[int], np.ndarray]
    """Read at most n frames, (n, channels) float32; none at the end."""


def read_audio(path: SoundFile, most_seconds: float | None = None) -> tuple[np.ndarray, int]:
    """Return samples (N,) float32, averaged over channels, and the number of samples per second.

    A recording of more than `most_seconds` is an error, found before the rest of it is decoded.
    """
    with open_audio(path) as stream:
        parts, n = list[np.ndarray](), 0
        while len(block := stream.read(max(1, BLOCK // stream.n_channels))):
            parts.append(block.mean(1, dtype="float32"))
            n += len(block)
            require_length(n, stream.rate, str(path))
            if most_seconds is not None and n > most_seconds * stream.rate:
                raise DataError(f"{path} is longer than {most_seconds:g} s", "give a shorter recording")
    if stream.n_frames is not None and n < stream.n_frames:
        size = stream.frame_bytes or 1
        unit = "byte" if stream.frame_bytes else "sample"
        whole = count(stream.n_frames * size, unit)
        raise DataError(f"{path} is truncated: it contains {n * size:,} of {whole}", "copy it again")
    samples = np.concatenate(parts) if parts else np.zeros(0, "float32")
    if not np.isfinite(samples).all():
        raise DataError(f"{path} is damaged: it has samples that are not finite numbers", AGAIN)
    return samples, stream.rate


def measure_audio(path: Path) -> tuple[float, int]:
    """Return the length of a recording in seconds, and its rate, as its header gives them; nothing is decoded."""
    with open_audio(path) as stream:
        n = MAX_SAMPLES if stream.n_frames is None else stream.n_frames
        if stream.frame_bytes:
            n = min(n, path.stat().st_size // stream.frame_bytes)
        return min(n, MAX_SAMPLES) / stream.rate, stream.rate


@contextmanager
def open_audio(path: SoundFile) -> Iterator[Stream]:
    """Open a recording. A file in an unsupported format, or with an impossible rate, is an error."""
    if isinstance(path, Path):
        require_file(path)
    kind = format_of(path)
    try:
        with open_file(path, kind) as file:
            yield wave_stream(file, path) if isinstance(file, wave.Wave_read) else other_stream(file, path, kind)
    except EOFError:
        raise DataError(f"{path} is truncated", AGAIN) from None
    except (wave.Error, RuntimeError, struct.error, OverflowError) as error:  # of the decoders, on damaged files
        raise damaged(path, kind, error) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file and its permissions") from None


def format_of(path: SoundFile) -> str:
    """Return the format of a file by its first bytes: "WAV", "FLAC", …"""
    start = first_bytes(path)
    if not start:
        raise DataError(f"{path} is empty", AGAIN)
    is_frame = start[0] == 0xFF and len(start) > 1 and start[1] >> 5 == 0b111  # an MP3 file without a header
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "MP3" if is_frame else None)
    if kind is None:
        raise DataError(f"{path} is not a recording in a supported format (WAV, FLAC, OGG, MP3, AIFF)", CONVERT)
    return kind


def first_bytes(path: SoundFile) -> bytes:
    if isinstance(path, SoundBytes):
        return path.getbuffer()[:4].tobytes()
    try:
        with open(path, "rb") as file:
            return file.read(4)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file and its permissions") from None


def openable(path: SoundFile) -> Any:
    """Return what a decoder opens: the path, or the contents from their start."""
    if isinstance(path, Path):
        return str(path)
    path.seek(0)
    return path


def open_file(path: SoundFile, kind: str) -> Any:
    if kind == "WAV":
        # wave.Error is raised for WAV files with other than plain integer samples, the others by damaged headers
        with suppress(wave.Error, RuntimeError, ValueError, struct.error, OverflowError):
            return wave.open(openable(path), "rb")
    return open_other(path, kind)


def wave_stream(file: wave.Wave_read, path: SoundFile) -> Stream:
    n_channels, width, rate, n = file.getparams()[:4]
    if n_channels < 1 or width < 1:
        raise damaged(path, "WAV", ValueError("no samples in a frame"))
    if width > 4:
        raise DataError(f"{path}: WAV files with {8 * width} bits are not supported", CONVERT)
    size = n_channels * width

    def read(n_frames: int) -> np.ndarray:
        data = file.readframes(n_frames)
        return to_floats(data[: len(data) // size * size], width).reshape(-1, n_channels)

    return Stream(require_rate(rate, str(path)), n_channels, n, size, read)


def to_floats(data: bytes, width: int) -> np.ndarray:
    """Convert little-endian samples of `width` bytes to floats; 8-bit samples are unsigned, wider ones signed."""
    if width == 1:
        return (np.frombuffer(data, "uint8").astype("float32") - 128) / 128
    raw = np.frombuffer(data, "uint8").reshape(-1, width)
    wide = np.zeros((len(raw), 4), "uint8")
    wide[:, 4 - width :] = raw  # the upper bytes of 32 bits
    return wide.view("<i4")[:, 0].astype("float32") / 2**31


def open_other(path: SoundFile, kind: str) -> Any:
    """Open a file with the library soundfile."""
    soundfile = import_soundfile(path, kind)
    try:
        return soundfile.SoundFile(openable(path))
    except soundfile.LibsndfileError as error:
        raise damaged(path, kind, error) from None


def other_stream(file: Any, path: SoundFile, kind: str) -> Stream:
    soundfile = import_soundfile(path, kind)
    if cut := re.search(r"^data : (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE):
        claimed, there = map(int, cut.groups())
        if there < claimed:
            raise DataError(f"{path} is truncated: it contains {there:,} of {count(claimed, 'byte')}", "copy it again")

    def read(n_frames: int) -> np.ndarray:
        try:
            block: np.ndarray = file.read(n_frames, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise damaged(path, kind, error) from None
        return block

    is_known = 0 <= file.frames < 2**62
    return Stream(
        require_rate(file.samplerate, str(path)), file.channels, file.frames if is_known else None, None, read
    )


def damaged(path: SoundFile, kind: str, error: Exception) -> DataError:
    reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
    because = "" if "does not exist" in reason else f" ({reason})"  # libsndfile's message for an unknown error
    return DataError(f"{path} is damaged, or in a form of {kind} that is not supported{because}", CONVERT)


def import_soundfile(path: SoundFile, kind: str) -> Any:
    try:
        import soundfile
    except (ModuleNotFoundError, OSError):  # OSError: the package without its C library
        other = "WAV files other than 8 to 32-bit integers" if kind == "WAV" else f"{kind} files"
        raise MachineError(
            f"{path}: reading {other} needs soundfile, which is not installed", "pip install 'clearformer[audio]'"
        ) from None
    return soundfile


def require_rate(rate: int, name: str) -> int:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise DataError(
            f"{name}: a sample rate of {rate:,} Hz is not supported",
            f"rates from {MIN_RATE:,} to {MAX_RATE:,} Hz are; if the header is damaged, {AGAIN}",
        )
    return rate


def require_length(n: int, rate: int, name: str) -> None:
    if n > MAX_SAMPLES:
        raise DataError(
            f"{name} is too long: more than {count(MAX_SAMPLES, 'sample')}, "
            f"{MAX_SAMPLES / rate / 3600:.1f} h at {rate:,} Hz",
            "divide it into shorter recordings",
        )


def read_sound(sound: Any, rate: int, shortest: int) -> np.ndarray:
    """Return samples (N,) int16 at `rate`; fewer than `shortest` samples are an error.

    A sound is a path; samples (N,), or (N, C) with C channels, at `rate`; a tuple of samples and their rate; or a
    dictionary with the keys `array` and `sampling_rate`, as the library datasets decodes recordings. Samples are
    integers of full scale, or floats in [−1, 1].
    """
    if isinstance(sound, np.ndarray) and sound.dtype == np.int16 and sound.ndim == 1:
        return sound
    name = str(sound) if isinstance(sound, str | Path) else "the recording"
    original, original_rate = read_audio(Path(sound)) if isinstance(sound, str | Path) else given_samples(sound, rate)
    require_length(len(original) * rate // original_rate, rate, name)
    samples = resample(torch.from_numpy(original), original_rate, rate).numpy()
    if len(samples) < shortest:
        raise DataError(
            f"{name} is too short: {len(samples) / rate:.3f} s, but {shortest / rate:.3f} s are needed",
            "remove it, or set a smaller sound.window",
        )
    rounded: np.ndarray = (samples * 2**15).round().clip(-(2**15), 2**15 - 1).astype("int16")
    return rounded


def given_samples(sound: Any, rate: int) -> tuple[np.ndarray, int]:
    """Return the samples of an object, (N,) float32, and their rate. The shorter of two axes has the channels."""
    if isinstance(sound, dict) and {"array", "sampling_rate"} <= sound.keys():
        sound = sound["array"], sound["sampling_rate"]
    if isinstance(sound, tuple) and len(sound) == 2 and isinstance(sound[1], int | float | np.number):
        sound, rate = sound[0], require_rate(int(sound[1]), "the recording")
    try:
        samples = np.asarray(sound)
    except (ValueError, TypeError):  # parts of different lengths, or a tensor on another device
        samples = np.asarray(None)
    if samples.dtype.kind not in "iuf" or samples.ndim not in (1, 2):
        raise DataError(
            f"a recording cannot be a {type(sound).__name__} with values of type {samples.dtype} "
            f"and shape {samples.shape}",
            "give a path, an array of samples, or a tuple of samples and their rate",
        )
    if samples.dtype.kind != "f":
        bits = 8 * samples.dtype.itemsize
        middle = 2 ** (bits - 1) if samples.dtype.kind == "u" else 0
        samples = (samples.astype("float64") - middle) / 2 ** (bits - 1)
    if not np.isfinite(samples).all():
        raise DataError("the recording has samples that are not finite numbers", "remove it")
    if samples.ndim == 2:
        samples = samples.mean(int(np.argmin(samples.shape)))
    return np.ascontiguousarray(samples, dtype="float32"), rate
