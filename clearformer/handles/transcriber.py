"""A speech recogniser: it transcribes recordings, with the start and end of each word in seconds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.data.audio import read_sound
from clearformer.data.batch import SoundBatch
from clearformer.data.collate import cut
from clearformer.data.recordings import pad_sounds
from clearformer.data.sound import SoundConfig, SoundFrontend
from clearformer.generation.best_path import TimedToken, best_path
from clearformer.handles.handle import Handle, renamed
from clearformer.handles.inputs import File, one_or_many
from clearformer.handles.passes import in_passes, watched_layers
from clearformer.text import Tokenizer

SECONDS = 120  # seconds of sound per batch, padding included


@dataclass(frozen=True)
class Word:
    """A word with its start and end in seconds.

    The times span the frames where the best path emits the word's tokens; the spoken word may be longer.
    """

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript:
    text: str
    words: list[Word]


class Transcriber(Handle):
    """A speech recogniser, loaded from a run on recordings."""

    kind = "a speech recogniser"
    verbs = ("transcribe", "evaluate")
    main = "transcribe"

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, sound: SoundConfig, name: str = "model") -> None:
        super().__init__(model, name)
        self.tokenizer, self.sound = tokenizer, sound
        self.frontend = SoundFrontend(sound).eval()

    @one_or_many
    def transcribe(self, sounds: Sequence[File | tuple]) -> list[Transcript]:
        """Transcribe sound files, or samples: an array at the model's sampling rate, or a tuple (samples, rate)."""
        samples = [self.open(sound) for sound in sounds]
        lengths = np.array(list(map(len, samples)), "int64")
        order = np.argsort(lengths, kind="stable")
        transcripts: dict[int, Transcript] = {}
        batches = np.split(order, cut(lengths[order], SECONDS * self.sound.rate)) if samples else []
        for index in in_passes(batches, len(samples)):
            logits, n = self.logits(pad_sounds([samples[i] for i in index]))
            transcripts |= zip(index.tolist(), map(self.spell, best_path(logits, n)))
        return [transcripts[i] for i in range(len(samples))]

    def open(self, sound: Any) -> np.ndarray:
        """Return the samples of a sound (see `read_sound`), (N,) int16, at the model's sampling rate."""
        return read_sound(sound, self.sound.rate, self.sound.window_samples)

    @torch.no_grad()
    def logits(self, batch: SoundBatch) -> tuple[Tensor, Tensor]:
        """Return the logits at each output frame (B, T, V + 1), and the number of frames of each recording (B,)."""
        batch = self.frontend(batch.to(self.device))
        with watched_layers(self.model):
            return self.model(batch), self.model.shortened(batch.lengths)

    scores = renamed("scores", "logits")

    def spell(self, path: Sequence[TimedToken]) -> Transcript:
        """Convert a path to text and timed words. A word lasts from its first token to its last token."""
        stream, text, sources = self.tokenizer.stream(), "", list[TimedToken]()  # sources: the token of each character
        for timed in path:
            new_text = stream.step(timed.token) or ""
            text += new_text
            sources += [timed] * len(new_text)
        frame = self.sound.hop * prod(self.model.config.strides)  # seconds per output frame
        words = [(match[0], sources[match.start()], sources[match.end() - 1]) for match in re.finditer(r"\S+", text)]
        timed_words = [Word(word, round(a.start * frame, 3), round(b.end * frame, 3)) for word, a, b in words]
        return Transcript(" ".join(word for word, _, _ in words), timed_words)
