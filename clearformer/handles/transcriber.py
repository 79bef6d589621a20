"""Recordings to text, word by word with their times in seconds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.data.batch import SoundBatch
from clearformer.data.collate import cut
from clearformer.data.recordings import pad_sounds
from clearformer.data.sound import SoundConfig, SoundFrontend
from clearformer.data.wav import read_sound
from clearformer.generation.best_path import Said, best_path
from clearformer.handles.batching import refuse_string
from clearformer.handles.handle import Handle
from clearformer.text import Tokenizer

SECONDS = 120  # of sound computed at once, padding included


@dataclass(frozen=True)
class Word:
    """A word and when it is said, in seconds: as far as the path shows it, which is where the model was sure of it."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript:
    text: str
    words: list[Word]


class Transcriber(Handle):
    """`load` makes one from the run folder of a training on recordings."""

    kind = "a speech recogniser"
    verbs = ("transcribe", "evaluate")

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, sound: SoundConfig, name: str = "model") -> None:
        super().__init__(model, name)
        self.tokenizer, self.sound = tokenizer, sound
        self.ear = SoundFrontend(sound).eval()

    def transcribe(self, sounds: Sequence[str | Path | np.ndarray]) -> list[Transcript]:
        """WAV files, or samples (N,) int16 at the model's own rate."""
        refuse_string(sounds, "file")
        ready = [sound if isinstance(sound, np.ndarray) else self.open(sound) for sound in sounds]
        lengths = np.array(list(map(len, ready)), "int64")
        order = np.argsort(lengths, kind="stable")
        transcripts: dict[int, Transcript] = {}
        for index in np.split(order, cut(lengths[order], SECONDS * self.sound.rate)) if ready else []:
            logits, n = self.scores(pad_sounds([ready[i] for i in index]))
            transcripts |= zip(index.tolist(), map(self.spell, best_path(logits, n)))
        return [transcripts[i] for i in range(len(ready))]

    def open(self, sound: str | Path) -> np.ndarray:
        """A WAV file's samples (N,) int16, at the model's own rate."""
        return read_sound(Path(sound), self.sound.rate, self.sound.window_samples)

    @torch.no_grad()
    def scores(self, batch: SoundBatch) -> tuple[Tensor, Tensor]:
        """What the head says at each moment (B, T, V + 1), and how many moments each recording has (B,)."""
        batch = self.ear(batch.to(self.device))
        return self.model(batch), self.model.shortened(batch.lengths)

    def spell(self, path: Sequence[Said]) -> Transcript:
        """Every letter belongs to the token that brought it, and a word lasts from its first letter to its last."""
        stream, text, owners = self.tokenizer.stream(), "", list[Said]()
        for said in path:
            piece = stream.step(said.token) or ""
            text += piece
            owners += [said] * len(piece)
        moment = self.sound.hop * prod(self.model.config.strides)  # seconds
        words = [(match[0], owners[match.start()], owners[match.end() - 1]) for match in re.finditer(r"\S+", text)]
        timed = [Word(word, round(first.start * moment, 3), round(last.end * moment, 3)) for word, first, last in words]
        return Transcript(" ".join(word for word, _, _ in words), timed)
