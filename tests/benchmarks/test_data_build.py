"""benchmarks/data_build.py: the folders that it enlarges are as `data build` leaves them."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import clearformer
from clearformer.data.built import pieces
from clearformer.data.built.stores import BuiltDocuments, BuiltPairs


@pytest.fixture
def benchmark() -> ModuleType:
    return import_module("data_build")


def test_an_enlarged_folder_of_pairs_is_whole(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "few.tsv"
    corpus.write_text("".join(f"a b {i}\tc d {i}\n" for i in range(200)))
    clearformer.build_data(tmp_path / "built", pairs=corpus)
    monkeypatch.setattr(pieces, "SHARD_ROWS", 500)
    benchmark.enlarge(tmp_path / "built", 1700)
    assert clearformer.verify(tmp_path / "built")["faults"] == []
    store = BuiltPairs(tmp_path / "built")
    assert len(store) == len(store.lengths) == 1700
    assert [store.shards.open(n).sizes()[0] for n in range(4)] == [500, 500, 500, 200]


def test_an_enlarged_text_is_whole_and_its_end_is_found(benchmark: ModuleType, tmp_path: Path) -> None:
    corpus, built, run = tmp_path / "few.txt", tmp_path / "built", tmp_path / "run"
    corpus.write_text("".join(f"a b {i}\n" for i in range(200)))
    clearformer.build_data(built, text=corpus)
    benchmark.enlarge_text(built, 70_001, 20_000)
    assert clearformer.verify(built)["faults"] == []
    store = BuiltDocuments(built)
    assert len(store.tokens) == store.offsets[-1] == 70_001
    assert len(store.shards.index.shards) == 4
    benchmark.begin(["--text", built, "--model", "gpt"], run, benchmark.TINY_TEXT["gpt"])
    benchmark.move_text_to_end(run)
    assert benchmark.timed(run)["peak_mb"] > 0
