"""Read recordings with transcripts, store their samples, and join recordings into longer ones, called strings.

    RecordingSource(path="train.tsv")                     a table: a sound file and its transcript in each row
    RecordingSource(path="train.tsv", speaker=2)          the same, with the speaker in another column
    RecordingSource(path="commands")                      a folder with one subfolder of sound files per word
    RecordingSource(path="digits.tsv", join=(1, 7))       strings of 1 to 7 recordings of one speaker, drawn every epoch

Paths in a table are relative to its folder. All file types of files/open.py are supported, and all formats of sound
files of audio.py.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt

from clearformer.data.audio import SUFFIXES
from clearformer.data.batch import IGNORE, SoundBatch
from clearformer.data.collate import spread
from clearformer.data.files.columns import recording_columns
from clearformer.data.files.open import is_table, open_table, require_names
from clearformer.data.files.table import Table
from clearformer.data.labels import Column, as_label
from clearformer.data.source import Source
from clearformer.data.sources import as_text, file_type, non_empty
from clearformer.data.store import Ragged, Store, Writer, gather
from clearformer.data.tally import Skipped
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean

OPTION = "--set data.train.sound=NAME and --set data.train.text=NAME"


class Recording(NamedTuple):
    """A sound file, its transcript and its speaker."""

    path: Path
    text: str
    speaker: str = ""


class RecordingSource(Source):
    """The path of recordings, and how they are joined into strings."""

    path: Path = Field(description="path of a data table (.tsv, .csv …), or of a folder with one subfolder per word")
    sound: Column = Field(0, description="column of the path of the sound file, a number from 0 or a name")
    text: Column = Field(1, description="column of the transcript, a number from 0 or a name")
    speaker: Column | None = Field(
        None, description="column of the speaker, a number from 0 or a name; default: all recordings have one speaker"
    )
    join: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="minimum and maximum number of recordings to join, all of one speaker; default: no joining"
    )
    silence: tuple[NonNegativeFloat, NonNegativeFloat] = Field(
        (0.0, 0.0),
        description="minimum and maximum silence before, between and after joined recordings, in seconds",
    )
    strings: PositiveInt | None = Field(
        None, description="number of joined recordings per epoch; default: enough to use each recording about once"
    )

    def model_post_init(self, _: object) -> None:
        for name in ("join", "silence"):
            if (limits := getattr(self, name)) is not None and limits[0] > limits[1]:
                raise ValueError(f"{name} = {list(limits)}: the minimum is larger than the maximum")
        if self.join is None and (self.strings is not None or any(self.silence)):
            raise ValueError("`strings` and `silence` need joined recordings: set `join`, for example join = [1, 7]")

    def read(self, skipped: Skipped | None = None) -> Generator[Recording]:
        """Stream the recordings in order, unopened. A wrong path raises at once, a bad row when it is reached.

        Blank rows are counted in `skipped`.
        """
        if self.path.is_dir() and not is_table(self.path):
            return non_empty(self.path, self._read_folders(), "recording, in a subfolder", "--recordings")
        table = open_table(
            self.path, also=" with paths of sound files and transcripts, or a folder with one subfolder per word"
        )
        columns = [self.sound, self.text, *([] if self.speaker is None else [self.speaker])]
        require_names(table, columns, OPTION)
        return non_empty(self.path, self._read_table(table, columns, skipped or Skipped()), "recording")

    def _read_table(self, table: Table, columns: Sequence[Column], skipped: Skipped) -> Generator[Recording]:
        with closing(table.read(columns, OPTION)) as rows:
            for where, values in rows:
                name, text = (as_text(value, column, where) for value, column in zip(values[:2], columns))
                if not name.strip():
                    skipped.add(where)
                    continue
                path = self.path.parent / name
                if not isfile(path):  # False for names that no file can have, where Path.is_file raises an error
                    raise DataError(f"{where}: {path} does not exist", f"paths are relative to {self.path.parent}")
                if not clean(text):
                    raise DataError(
                        f"{where}: the transcript of {name} is empty", "add a transcript, or remove the line"
                    )
                yield Recording(path, clean(text), *(as_label(value, str(self.speaker), where) for value in values[2:]))

    def _read_folders(self) -> Generator[Recording]:
        for path in sorted(self.path.glob("*/*")):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                yield Recording(path, clean(path.parent.name))


def named_recording_columns(path: Path) -> dict[str, Any]:
    """Return the columns of the path and the transcript if their names are well known, otherwise {}."""
    is_list = is_table(path) or (path.is_file() and file_type(path) == ".txt")
    return recording_columns(open_table(path).names()) if is_list else {}


class RecordingStore(Store):
    """A memory-mapped store of samples and speaker numbers.

    Stores hold unsigned integers, so the bits of the int16 samples are stored as uint16.
    """

    SIDES = ("samples", "speaker")
    KIND = "recordings 1"
    CONTENT = "recordings"

    @property
    def lengths(self) -> np.ndarray:
        """The number of samples of each recording, (n,) int64."""
        return np.diff(self._offsets[0])

    @property
    def speakers(self) -> np.ndarray:
        """The speaker number of each recording, (n,)."""
        return self._flat[1]

    def rows(self, index: np.ndarray) -> Ragged:
        """Return the int16 samples of the recordings with the indices `index` (B,), in this order."""
        samples = gather(self._flat[0], self._offsets[0], index)
        return Ragged(samples.flat.view("int16"), samples.lengths)


class RecordingWriter(Writer):
    STORE = RecordingStore

    def add(self, samples: np.ndarray, speaker: int) -> None:
        """Append a recording."""
        self._append([samples.view("uint16")], [[speaker]])


class String(NamedTuple):
    """Several recordings joined into one, with silences."""

    members: np.ndarray  # (k,) indices of the recordings
    silences: np.ndarray  # (k + 1,) number of silent samples before each recording and after the last


class Strings:
    """The rows for a model: single recordings, or strings, whose draws are a pure function of (seed, epoch)."""

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
        probabilities = [len(recordings) / n for recordings in self.by_speaker]
        speakers = rng.choice(len(self.by_speaker), n_strings, p=probabilities)
        counts = rng.integers(join[0], join[1], n_strings, endpoint=True)
        low, high = (seconds * self.rate for seconds in self.source.silence)
        return [
            String(rng.choice(self.by_speaker[i], k), rng.uniform(low, high, k + 1).astype("int64"))
            for i, k in zip(speakers, counts)
        ]

    def length(self, string: String) -> int:
        """Return the number of samples of a string, silences included."""
        return int(self.store.lengths[string.members].sum() + string.silences.sum())

    def text(self, string: String) -> str:
        return " ".join(self.texts[i] for i in string.members)

    def tokens(self, strings: Sequence[String]) -> list[list[int]]:
        return self.tokenizer.encode([self.text(string) for string in strings])

    def batch(self, strings: Sequence[String]) -> SoundBatch:
        return pad_sounds([self.sound(string) for string in strings], self.tokens(strings))

    def sound(self, string: String) -> np.ndarray:
        """Return the samples of a string, (N,) int16; silences are zeros."""
        samples = self.store.rows(string.members)
        before = np.repeat(np.cumsum(string.silences[:-1]), samples.lengths)
        sound = np.zeros(self.length(string), "int16")
        sound[before + np.arange(len(samples.flat))] = samples.flat
        return sound


def pad_sounds(sounds: Sequence[np.ndarray], tokens: Sequence[Sequence[int]] | None = None) -> SoundBatch:
    """Make a batch as long as its longest recording: sounds are padded with zeros, transcripts with IGNORE."""
    lengths = np.array([len(sound) for sound in sounds])
    samples = np.zeros((len(sounds), lengths.max()), "int16")
    for row, sound in zip(samples, sounds):
        row[: len(sound)] = sound
    transcripts = None if tokens is None else Ragged.of(tokens)
    labels = None
    if transcripts is not None:
        labels = torch.from_numpy(spread(transcripts, int(transcripts.lengths.max()), IGNORE))
    return SoundBatch(torch.from_numpy(samples), torch.from_numpy(lengths), labels)
