"""Pairs come back from disk as they went in, and a writer that fails leaves nothing behind."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from clearformer.data.image_store import ImageWriter
from clearformer.data.labels import LabelRows
from clearformer.data.recordings import RecordingWriter
from clearformer.data.store import DocumentWriter, PairStore, Ragged, StoreWriter
from clearformer.errors import DataError, MachineError

SOURCE = [[5, 6, 7], [], [11], [2, 3]]
TARGET = [[1], [13, 12], [8, 9, 10, 4, 3], []]


def rows(ragged: Ragged) -> list[list[int]]:
    return [part.tolist() for part in np.split(ragged.flat, np.cumsum(ragged.lengths)[:-1])]


def stored(path: Path, vocab_size: int = 17) -> PairStore:
    with StoreWriter(path, vocab_size, {"tokenizer": "abc"}) as writer:
        writer.add(SOURCE[:3], TARGET[:3])
        writer.add(SOURCE[3:], TARGET[3:])
    return PairStore(path)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(17, "uint16"), (65536, "uint16"), (65537, "int32")])
def test_round_trip(tmp_path: Path, vocab_size: int, dtype: str) -> None:
    store = stored(tmp_path / "new" / "pairs.safetensors", vocab_size)
    assert len(store) == 4
    assert store.lengths.tolist() == [[3, 1], [0, 2], [1, 5], [2, 0]]
    assert store.lengths.dtype == np.int32
    assert store.metadata == {"tokenizer": "abc"}
    source, target = store.rows(np.array([2, 0, 3, 1]))
    assert source.flat.dtype == dtype
    assert rows(source) == [SOURCE[i] for i in (2, 0, 3, 1)]
    assert rows(target) == [TARGET[i] for i in (2, 0, 3, 1)]
    assert [file.name for file in store.path.parent.iterdir()] == ["pairs.safetensors"]


def test_the_largest_id_survives(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "p", 65536) as writer:
        writer.add([[65535]], [[0]])
        assert rows(writer.close().rows(np.array([0]))[0]) == [[65535]]


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    tensors = load_file(stored(tmp_path / "p").path)
    assert tensors["source"].tolist() == [5, 6, 7, 11, 2, 3]
    assert tensors["target_offsets"].tolist() == [0, 1, 3, 8, 8]


def test_reading_maps_the_file_instead_of_loading_it(tmp_path: Path) -> None:
    store = stored(tmp_path / "p")
    if (maps := Path("/proc/self/maps")).exists():
        assert f"{store.path}\n" in maps.read_text()
    assert not any(flat.flags.owndata for flat in store._flat)


def test_random_rows_agree_with_lists(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    sides = [[rng.integers(0, 101, rng.integers(0, 13)).tolist() for _ in range(211)] for _ in range(2)]
    with StoreWriter(tmp_path / "p", 101) as writer:
        for i in range(0, 211, 23):
            writer.add(sides[0][i : i + 23], sides[1][i : i + 23])
    index = rng.integers(0, 211, 83)
    for side, read in zip(sides, PairStore(tmp_path / "p").rows(index)):
        assert rows(read) == [side[i] for i in index]


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with StoreWriter(tmp_path / "p", 17) as writer:
            writer.add(SOURCE, TARGET)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not list(tmp_path.iterdir())


def test_a_failing_writer_spares_the_older_store(tmp_path: Path) -> None:
    store = stored(tmp_path / "p")
    with pytest.raises(OverflowError), StoreWriter(tmp_path / "p", 17) as writer:
        writer.add([[70_000]], [[1]])
    assert [file.name for file in tmp_path.iterdir()] == ["p"]
    assert len(PairStore(store.path)) == 4


def test_nothing_to_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no pairs"), StoreWriter(tmp_path / "p", 17):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "p", 17)
    with open("/dev/full", "wb", buffering=0) as full:
        writer._file._raw["target"] = full
        with pytest.raises(MachineError, match="the disk is full\nhint: free"), writer:
            writer.add(SOURCE, TARGET)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_while_joining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("clearformer.data.tensor_file.os.replace", fail)
    with pytest.raises(MachineError, match="the disk is full"):
        stored(tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="cannot be written"):
        StoreWriter(tmp_path / "file" / "p", 17)


def test_truncated_store(tmp_path: Path) -> None:
    path = stored(tmp_path / "p").path
    whole = path.read_bytes()
    for size in (0, 5, 40, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(DataError, match="truncated or does not contain prepared"):
            PairStore(tmp_path / "cut")


def test_foreign_files(tmp_path: Path) -> None:
    save_file({"weight": np.zeros((2, 3))}, tmp_path / "model.safetensors")
    (tmp_path / "text").write_text("no safetensors at all\n" * 11)
    with pytest.raises(DataError, match="does not contain prepared"):
        PairStore(tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="truncated or does not contain prepared"):
        PairStore(tmp_path / "text")
    with pytest.raises(DataError, match="truncated or does not contain prepared"):
        PairStore(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        PairStore(tmp_path / "nowhere")


def test_every_store_has_the_mode_that_the_umask_gives(
    tmp_path: Path, mode: int, modes: Callable[[Path], set[int]]
) -> None:
    with StoreWriter(tmp_path / "pairs.safetensors", 17) as pairs:
        pairs.add([[1, 2]], [[3]])
    with DocumentWriter(tmp_path / "documents.safetensors", 17, 0) as documents:
        documents.add([[1, 2]])
    with ImageWriter(tmp_path / "images.safetensors", 3, 2) as images:
        images.add(np.zeros((3, 2, 2), "uint8"), 1)
    with RecordingWriter(tmp_path / "recordings.safetensors", 2**16) as recordings:
        recordings.add(np.zeros(5, "int16"), 0)
    tokens = Ragged.of([[1, 2], [3]])
    LabelRows(tokens, tokens, np.array([0, 1])).save(tmp_path / "labels.safetensors")
    assert len(list(tmp_path.iterdir())) == 5
    assert modes(tmp_path) == {mode}
