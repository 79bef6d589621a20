"""Read WAV files with the standard library's `wave`: 8, 16, 24 or 32 bits, any number of channels, any rate."""

import wave
from pathlib import Path

import numpy as np
import torch

from clearformer.data.resample import resample
from clearformer.data.sources import require_file
from clearformer.errors import DataError
from clearformer.wording import count

MAX_RATE = 2**20  # samples per second; a higher rate means that the header is damaged
CONVERT = "convert it, for example: ffmpeg -i in.wav -c:a pcm_s16le out.wav"


def read_wav(path: Path) -> tuple[np.ndarray, int]:
    """Return samples (N,) float32 in [−1, 1), averaged over channels, and the number of samples per second."""
    require_file(path)
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty", "record or copy it again")
    try:
        with wave.open(str(path), "rb") as file:
            n_channels, width, rate, n = file.getparams()[:4]
            data = file.readframes(n)
    except EOFError:
        raise DataError(f"{path} is truncated", "record or copy it again") from None
    except wave.Error as error:
        raise DataError(f"{path} is not an uncompressed WAV file ({error})", CONVERT) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file and its permissions") from None
    if not 1 <= width <= 4 or not 1 <= rate <= MAX_RATE:
        raise DataError(f"{path}: {8 * width} bits at {rate} Hz are not supported", CONVERT)
    if len(data) < n * n_channels * width:
        size = n * n_channels * width
        raise DataError(f"{path} is truncated: it contains {len(data):,} of {count(size, 'byte')}", "copy it again")
    return to_floats(data, width).reshape(-1, n_channels).mean(1, dtype="float32"), rate


def to_floats(data: bytes, width: int) -> np.ndarray:
    """Convert little-endian samples of `width` bytes to floats; 8-bit samples are unsigned, wider ones signed."""
    if width == 1:
        return (np.frombuffer(data, "uint8").astype("float32") - 128) / 128
    raw = np.frombuffer(data, "uint8").reshape(-1, width)
    wide = np.zeros((len(raw), 4), "uint8")
    wide[:, 4 - width :] = raw  # the upper bytes of 32 bits
    return wide.view("<i4")[:, 0].astype("float32") / 2**31


def read_sound(path: Path, rate: int, shortest: int) -> np.ndarray:
    """Read samples (N,) int16, resampled to `rate`; fewer than `shortest` samples are an error."""
    original, original_rate = read_wav(path)
    samples = resample(torch.from_numpy(original), original_rate, rate).numpy()
    if len(samples) < shortest:
        raise DataError(
            f"{path} is too short: {len(samples) / rate:.3f} s, but {shortest / rate:.3f} s are needed",
            "remove it, or set a smaller sound.window",
        )
    rounded: np.ndarray = (samples * 2**15).round().clip(-(2**15), 2**15 - 1).astype("int16")
    return rounded
