"""Lists of recordings, and strings of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data.batch import IGNORE
from clearformer.data.recordings import Recording, RecordingSource, RecordingStore, RecordingWriter, Strings
from clearformer.errors import ConfigError, DataError
from clearformer.text import TextConfig, train_tokenizer

RATE = 1000


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"RIFF")


def test_a_list_says_file_words_and_speaker(tmp_path: Path) -> None:
    touch(tmp_path, "wavs/a.wav", "wavs/b.wav")
    path = tmp_path / "train.tsv"
    path.write_text("wavs/a.wav\tone  two\tann\n\nwavs/b.wav\tthree\tben\n")
    wavs = tmp_path / "wavs"
    assert list(RecordingSource(path=path).read()) == [
        Recording(wavs / "a.wav", "one two"),
        Recording(wavs / "b.wav", "three"),
    ]
    assert [one.speaker for one in RecordingSource(path=path, speaker=2).read()] == ["ann", "ben"]
    path.write_text("who\tfile\twords\nann\twavs/b.wav\tone\n")
    named = RecordingSource(path=path, sound="file", text="words", speaker="who")
    assert list(named.read()) == [Recording(wavs / "b.wav", "one", "ann")]


def test_folders_are_words(tmp_path: Path) -> None:
    touch(tmp_path, "yes/2.wav", "no/1.wav", "yes/1.wav", "yes/notes.txt")
    found = [(one.path.name, one.text) for one in RecordingSource(path=tmp_path).read()]
    assert found == [("1.wav", "no"), ("1.wav", "yes"), ("2.wav", "yes")]


def test_bad_lists_are_said(tmp_path: Path) -> None:
    touch(tmp_path, "a.wav")
    path = tmp_path / "list.tsv"
    for content, problem in (
        ("a.wav\tone\nb.wav\ttwo\n", r"list\.tsv:2: .*b\.wav does not exist"),
        ("a.wav\t \n", r"list\.tsv:1: the transcript of a\.wav is empty"),
        ("x" * 5000 + "\tone\n", r"list\.tsv:1: .* does not exist"),
        ("a.wav\n", r"list\.tsv:1: 1 column, but 2 are needed"),
        ("", "is empty"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=problem):
            list(RecordingSource(path=path).read())
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="is empty"):
        list(RecordingSource(path=tmp_path / "none").read())
    with pytest.raises(DataError, match="unsupported file type"):
        RecordingSource(path=tmp_path / "a.wav").read()
    for wrong in ({"join": (5, 3)}, {"silence": (0.1, 0.2)}, {"join": (0, 2)}):
        with pytest.raises(ConfigError):
            RecordingSource.parse({"path": path, **wrong}, "[data]")


@pytest.fixture
def store(tmp_path: Path) -> RecordingStore:
    """Thirteen recordings; that of number i has i + 2 samples, all of −i: an even one is ann's, an odd one ben's."""
    with RecordingWriter(tmp_path / "train.safetensors", 2**16) as writer:
        for i in range(13):
            writer.add(np.full(i + 2, -i, "int16"), i % 2)
    return RecordingStore(tmp_path / "train.safetensors")


def strings_of(store: RecordingStore, **settings) -> Strings:
    texts = [f"w{i}" for i in range(13)]
    tokenizer = train_tokenizer(texts, TextConfig(kind="word", min_frequency=1))
    return Strings(store, texts, tokenizer, RecordingSource(path=Path(), **settings), RATE)


def test_recordings_by_themselves_come_in_order(store: RecordingStore) -> None:
    strings = strings_of(store)
    rows = strings.epoch(3, 5)
    assert [strings.text(row) for row in rows] == strings.texts
    batch = strings.batch(rows[:5:2])
    assert batch.sounds.tolist() == [[0, 0, 0, 0, 0, 0], [-2, -2, -2, -2, 0, 0], [-4] * 6]
    assert (batch.sounds.dtype, batch.lengths.tolist(), batch.n_tokens) == (torch.int16, [2, 4, 6], 3)


def test_strings_are_of_one_speaker_and_a_function_of_seed_and_epoch(store: RecordingStore) -> None:
    strings = strings_of(store, join=(2, 5), silence=(0.003, 0.007), strings=101)
    rows = strings.epoch(3, 5)
    assert len(rows) == 101
    assert {len(row.members) for row in rows} == {2, 3, 4, 5}
    assert all(len(set(row.members % 2)) == 1 for row in rows)
    assert all(len(row.silences) == len(row.members) + 1 for row in rows)
    assert {int(gap) for row in rows for gap in row.silences} == {3, 4, 5, 6}
    again, others = strings.epoch(3, 5), [strings.epoch(3, 6), strings.epoch(4, 5)]
    assert [strings.text(row) for row in again] == [strings.text(row) for row in rows]
    assert all([strings.text(row) for row in other] != [strings.text(row) for row in rows] for other in others)
    assert len(strings_of(store, join=(2, 5)).epoch(0, 0)) == 3  # thirteen recordings, 3.5 at a time


def test_a_string_is_its_recordings_with_silence_around_them(store: RecordingStore) -> None:
    strings = strings_of(store, join=(3, 3), silence=(0.001, 0.004), strings=2)
    for row in strings.epoch(0, 0):
        expected = [0] * row.silences[0]
        for member, gap in zip(row.members, row.silences[1:]):
            expected += [-int(member)] * (member + 2) + [0] * gap
        assert strings.sound(row).tolist() == expected
        assert strings.length(row) == len(expected)
        assert strings.text(row) == " ".join(f"w{i}" for i in row.members)


def test_letters_are_joined_by_spaces_and_short_rows_padded(store: RecordingStore) -> None:
    texts = ["a"] * 6 + ["ab"] * 7
    tokenizer = train_tokenizer(["a b"], TextConfig(kind="char", min_frequency=1))
    strings = Strings(store, texts, tokenizer, RecordingSource(path=Path(), join=(1, 3), strings=53), RATE)
    rows = strings.epoch(0, 0)
    batch = strings.batch(rows)
    assert batch.labels is not None
    for row, labels in zip(rows, batch.labels):
        said = labels[labels != IGNORE].tolist()
        assert tokenizer.decode([said]) == [strings.text(row)]
        assert labels[len(said) :].eq(IGNORE).all()
    assert batch.n_tokens == sum(len(strings.text(row)) for row in rows)
