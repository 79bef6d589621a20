"""Words that are tones: recordings that a small model learns in seconds."""

import wave
from pathlib import Path
from random import Random

import numpy as np

RATE = 2000
WORDS = {"low": 150, "mid": 300, "high": 600}  # hertz
RECIPE = {
    "sound": {"rate": RATE, "n_mels": 11, "window": 0.032, "hop": 0.016},
    "text": {"kind": "word", "min_frequency": 1},
    "model": {"kind": "speech-rnn", "n_layers": 1, "d_model": 26, "dropout": 0.0},
    "optim": {"lr": 0.02},
    "schedule": {"kind": "linear", "warmup": 10},
    "train": {"steps": 150, "tokens": 300, "ema": 0.9, "validate_every": 50, "save_every": 50},
}


def write_wav(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 2**15).astype("<i2").tobytes())
    return path


def tone(word: str, seconds: float, rate: int = RATE) -> np.ndarray:
    t = np.arange(int(seconds * rate)) / rate
    return 0.5 * np.sin(2 * np.pi * WORDS[word] * t) * np.hanning(len(t))


def write_tones(folder: Path, n: int, seed: int) -> Path:
    """n recordings of two speakers, of whom one is slower, and their list."""
    draw, lines = Random(seed), []
    for i in range(n):
        word, speaker = draw.choice(list(WORDS)), ("ann", "ben")[i % 2]
        write_wav(folder / f"{seed}-{i}.wav", tone(word, draw.uniform(0.1, 0.2) * (1 + i % 2)))
        lines.append(f"{seed}-{i}.wav\t{word}\t{speaker}\n")
    path = folder / f"list-{seed}.tsv"
    path.write_text("".join(lines))
    return path
