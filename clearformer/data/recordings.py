"""Recordings and what is said in them: files to examples, examples to a store, and the store to strings.

    RecordingSource(path="train.tsv")                     a WAV file and its transcript a line, a tab between them
    RecordingSource(path="train.tsv", speaker=2)          and, in another column, who speaks
    RecordingSource(path="commands")                      a folder with a folder for each word, its WAV files inside
    RecordingSource(path="digits.tsv", join=(1, 7))       strings of 1 to 7 recordings of one speaker, drawn anew

Paths in a file start from its own folder.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt

from clearformer.config import Config
from clearformer.data.batch import IGNORE, SoundBatch
from clearformer.data.collate import spread
from clearformer.data.labels import Column
from clearformer.data.sources import read_cells, require_file, some
from clearformer.data.store import Ragged, Store, Writer, gather
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean


class Recording(NamedTuple):
    """A WAV file, what is said in it and by whom."""

    path: Path
    text: str
    speaker: str = ""


class RecordingSource(Config):
    """Where recordings lie, and how they are strung together."""

    path: Path = Field(description="a .tsv or .txt file, or a folder of folders")
    sound: Column = Field(0, description="column of the WAV file's path: number from 0, or name")
    text: Column = Field(1, description="the same of the transcript")
    speaker: Column | None = Field(None, description="the same of the speaker; everybody is one if not given")
    join: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="recordings of one speaker to a string, at least and at most; each by itself if not given"
    )
    silence: tuple[NonNegativeFloat, NonNegativeFloat] = Field(
        (0.0, 0.0), description="seconds around and between the recordings of a string, likewise"
    )
    strings: PositiveInt | None = Field(
        None, description="how many strings; as many as use every recording once, about, if not given"
    )

    def model_post_init(self, _: object) -> None:
        for name in ("join", "silence"):
            if (given := getattr(self, name)) is not None and given[0] > given[1]:
                raise ValueError(f"{name} = {list(given)} must rise")
        if self.join is None and (self.strings is not None or any(self.silence)):
            raise ValueError("`strings` and `silence` are for recordings that are joined: set join = [1, 7], or so")

    def read(self) -> Generator[Recording]:
        """Stream what there is, in order, sounds unopened. What is missing is said at once, or when it is reached."""
        if self.path.is_dir():
            return some(self.path, self._read_folders(), "recording")
        require_file(self.path)
        if self.path.name.removesuffix(".gz").endswith((".tsv", ".txt")):
            return some(self.path, self._read_tsv(), "recording")
        hint = "use .tsv, a WAV file and its transcript a line, or a folder of folders"
        raise DataError(f"{self.path} lists no recordings", hint)

    def _read_tsv(self) -> Generator[Recording]:
        columns = [self.sound, self.text, *([] if self.speaker is None else [self.speaker])]
        with closing(read_cells(self.path, columns)) as rows:
            for where, (name, text, *speaker) in rows:
                if not name.strip():
                    continue
                path = self.path.parent / name
                if not path.is_file():
                    raise DataError(f"{where}: there is no file {path}", "paths start from the folder of the list")
                if not clean(text):
                    raise DataError(f"{where}: nothing is said in {name}", "leave such recordings out")
                yield Recording(path, clean(text), *speaker)

    def _read_folders(self) -> Generator[Recording]:
        for path in sorted(self.path.glob("*/*.wav")):
            yield Recording(path, clean(path.parent.name))


class RecordingStore(Store):
    """Sounds and the number of who speaks, memory-mapped.

    Stores hold unsigned numbers: samples are kept, bit for bit, as if they were.
    """

    SIDES = ("samples", "speaker")
    KIND = "recordings 1"

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: samples of each recording."""
        return np.diff(self._offsets[0])

    @property
    def speakers(self) -> np.ndarray:
        """(n,)"""
        return self._flat[1]

    def rows(self, index: np.ndarray) -> Ragged:
        """The samples, int16, of the recordings numbered by `index` (B,), in its order."""
        found = gather(self._flat[0], self._offsets[0], index)
        return Ragged(found.flat.view("int16"), found.lengths)


class RecordingWriter(Writer):
    STORE = RecordingStore

    def add(self, samples: np.ndarray, speaker: int) -> None:
        """Append a recording."""
        self._append([samples.view("uint16")], [[speaker]])


class String(NamedTuple):
    """Recordings one after another."""

    members: np.ndarray  # (k,)
    silences: np.ndarray  # (k + 1,) samples before each of them and after the last


class Strings:
    """The rows that a model reads: recordings, or strings of them, which are a pure function of (seed, epoch)."""

    def __init__(
        self, store: RecordingStore, texts: Sequence[str], tokenizer: Tokenizer, source: RecordingSource, rate: int
    ) -> None:
        self.store, self.texts, self.tokenizer, self.source, self.rate = store, texts, tokenizer, source, rate
        self.by_speaker = [np.flatnonzero(store.speakers == speaker) for speaker in np.unique(store.speakers)]

    def epoch(self, seed: int, epoch: int) -> list[String]:
        n, join = len(self.store), self.source.join
        if join is None:
            return [String(np.array([i]), np.zeros(2, "int64")) for i in range(n)]
        rng = np.random.default_rng((seed, epoch))
        n_strings = self.source.strings or max(1, 2 * n // sum(join))
        who = rng.choice(len(self.by_speaker), n_strings, p=[len(own) / n for own in self.by_speaker])
        counts = rng.integers(join[0], join[1], n_strings, endpoint=True)
        low, high = (seconds * self.rate for seconds in self.source.silence)
        return [
            String(rng.choice(self.by_speaker[i], k), rng.uniform(low, high, k + 1).astype("int64"))
            for i, k in zip(who, counts)
        ]

    def length(self, string: String) -> int:
        """Samples."""
        return int(self.store.lengths[string.members].sum() + string.silences.sum())

    def text(self, string: String) -> str:
        return " ".join(self.texts[i] for i in string.members)

    def tokens(self, strings: Sequence[String]) -> list[list[int]]:
        return self.tokenizer.encode([self.text(string) for string in strings])

    def batch(self, strings: Sequence[String]) -> SoundBatch:
        return pad_sounds([self.sound(string) for string in strings], self.tokens(strings))

    def sound(self, string: String) -> np.ndarray:
        """The samples (N,) int16, zeros where it is silent."""
        samples = self.store.rows(string.members)
        before = np.repeat(np.cumsum(string.silences[:-1]), samples.lengths)
        sound = np.zeros(self.length(string), "int16")
        sound[before + np.arange(len(samples.flat))] = samples.flat
        return sound


def pad_sounds(sounds: Sequence[np.ndarray], tokens: Sequence[Sequence[int]] | None = None) -> SoundBatch:
    """A batch as long as its longest: sounds end in zeros, and what is said in them in IGNORE."""
    lengths = np.array([len(sound) for sound in sounds])
    samples = np.zeros((len(sounds), lengths.max()), "int16")
    for row, sound in zip(samples, sounds):
        row[: len(sound)] = sound
    said = None if tokens is None else Ragged.of(tokens)
    labels = None if said is None else torch.from_numpy(spread(said, int(said.lengths.max()), IGNORE))
    return SoundBatch(torch.from_numpy(samples), torch.from_numpy(lengths), labels)
