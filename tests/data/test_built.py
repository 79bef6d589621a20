"""Built folders: the same pairs as a run prepares, shards that survive a kill, an order that no rank changes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer.bundled.corpus import generate
from clearformer.checkpoint import RunFolder
from clearformer.data.built import pieces
from clearformer.data.built.folder import INDEX, SHARDED, is_built, read_index, read_pointer, use_built, write_pointer
from clearformer.data.built.order import ShardedBatches
from clearformer.data.built.remote import Remote, local_copy
from clearformer.data.built.stores import BuiltDocuments, BuiltPairs, open_pairs
from clearformer.data.store import PairStore
from clearformer.errors import ConfigError, DataError, Paused
from clearformer.tasks.task import load_tokenizers
from clearformer.training.distributed import World
from clearformer.training.feed import Steps

N = 700
SMALL = ["text.kind=word", "text.min_frequency=1", "data.held_out=0.05"]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pieces, "SHARD_ROWS", 128)
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{pair.english}\t{pair.hindi}\n" for pair in generate(N)), encoding="utf-8")
    return path


def build(corpus: Any, out: Path, **options: Any) -> dict[str, Any]:
    return clearformer.build_data(out, pairs=corpus, vocab_size=3000, settings=SMALL, **options)


def decoded(folder: Path) -> list[tuple[str, str]]:
    store, tokenizers = BuiltPairs(folder), load_tokenizers(RunFolder(folder), 2)
    sides = store.rows(np.arange(len(store)))
    texts = [
        tok.decode([part.tolist() for part in np.split(side.flat, np.cumsum(side.lengths)[:-1])])
        for tok, side in zip(tokenizers, sides)
    ]
    return list(zip(*texts))


def test_shards_hold_every_training_pair_in_the_order_of_the_corpus(corpus: Path, tmp_path: Path) -> None:
    result = build(corpus, tmp_path / "built")
    held_out = {tuple(pair) for pair in json.loads((tmp_path / "built" / "valid.json").read_text())}
    pairs = [tuple(line.split("\t")) for line in corpus.read_text(encoding="utf-8").splitlines()]
    assert decoded(tmp_path / "built") == [pair for pair in pairs if pair not in held_out]
    assert len(result["shards"]) == 6  # 700 lines, 128 in each
    assert 0 < len(held_out) < N // 5


def test_lengths_are_those_of_the_shards(corpus: Path, tmp_path: Path) -> None:
    build(corpus, tmp_path / "built")
    store = BuiltPairs(tmp_path / "built")
    shards = [PairStore(tmp_path / "built" / f"{shard.name}.safetensors").lengths for shard in store.index.shards]
    assert np.array_equal(store.lengths, np.concatenate(shards))


@pytest.mark.parametrize("kind", ["gz", "aligned", "jsonl", "object"])
def test_every_source_builds_the_same_tokens(corpus: Path, tmp_path: Path, kind: str) -> None:
    import gzip

    lines = corpus.read_text(encoding="utf-8").splitlines()
    source: Any = tmp_path / f"pairs.tsv.{kind}"
    if kind == "gz":
        source.write_bytes(gzip.compress(corpus.read_bytes()))
    elif kind == "aligned":
        source = (tmp_path / "a.txt", tmp_path / "b.txt")
        for side, path in enumerate(source):
            path.write_text("\n".join(line.split("\t")[side] for line in lines), encoding="utf-8")  # no last line end
    elif kind == "jsonl":
        source = tmp_path / "pairs.jsonl"
        rows = (dict(zip(("source", "target"), line.split("\t"))) for line in lines)
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        source = Pairs([tuple(line.split("\t")) for line in lines])
    build(corpus, tmp_path / "one")
    build(source, tmp_path / "two")
    assert decoded(tmp_path / "one") == decoded(tmp_path / "two")


class Pairs:
    """Any object with a length and items is a source."""

    def __init__(self, rows: list[tuple[str, ...]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> tuple[str, ...]:
        return self.rows[i]


def test_finished_shards_stay_when_a_killed_build_is_started_again(corpus: Path, tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "built"
    build(corpus, whole)
    build(corpus, folder)
    facts = json.loads((whole / INDEX).read_text())
    # As after a kill: no index, one shard half written, one without its counts.
    (folder / INDEX).unlink()
    (folder / "building.json").write_text(json.dumps({"key": facts["tables"]["key"]}))
    (folder / "train-00002.json").unlink()
    (folder / "train-00003.json").unlink()
    (folder / "train-00003.safetensors").write_bytes(b"half")
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("train-*.safetensors")}
    build(corpus, folder)
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("train-*.safetensors")}
    assert {name for name in after if after[name] != before[name]} == {
        "train-00002.safetensors",
        "train-00003.safetensors",
    }
    assert decoded(folder) == decoded(whole)
    assert not (folder / "building.json").exists()


def test_another_corpus_is_not_mixed_with_finished_shards(corpus: Path, tmp_path: Path) -> None:
    build(corpus, tmp_path / "built")
    assert build(corpus, tmp_path / "built")["shards"]  # complete already
    corpus.write_text(corpus.read_text(encoding="utf-8") + "one\ttwo\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="other data or settings"):
        build(corpus, tmp_path / "built")


def test_long_lines_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard has many lines, which may be long: it is read in blocks of limited size, and a line has its limit."""
    from clearformer.data import sources
    from clearformer.data.pairs import PairSource

    path = tmp_path / "long.tsv"
    path.write_text("a\tb\n" + "".join(f"{'x' * 700}\t{n}\n" for n in range(9)))
    monkeypatch.setattr(pieces, "MOST_BYTES", 1500)
    (piece,) = pieces.pair_pieces(PairSource(path=path))
    blocks = list(piece.blocks())
    assert [len(block.lines[0]) for block in blocks] == [4, 3, 3]
    assert [block.first for block in blocks] == [1, 5, 8]
    assert b"".join(line for block in blocks for line in block.lines[0]) == path.read_bytes()
    assert [len(lines) for lines in sources.read_blocks(path, 4, 10**6)] == [4, 4, 2]
    monkeypatch.setattr(sources, "READ", 1000)
    assert max(sum(map(len, lines)) for lines in sources.read_blocks(path, 8192, 1500)) < 3300
    monkeypatch.setattr(sources, "MAX_LINE", 600)
    with pytest.raises(DataError, match=r"long\.tsv: a line of more than"):
        list(piece.blocks())


def random_lengths(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 40, (n, 2)).astype("int32")


def batches(tokens: int = 200, seed: int = 0) -> ShardedBatches:
    return ShardedBatches(random_lengths(1000), np.array([0, 130, 260, 500, 777, 900, 1000]), tokens, seed)


def test_an_epoch_has_every_pair_once_within_the_budget() -> None:
    order = batches()
    for epoch in range(3):
        plan = list(order.epoch(epoch))
        assert sorted(np.concatenate(plan).tolist()) == list(range(1000))
        assert max(len(rows) * int(order.lengths[rows].max() + 1) for rows in plan) <= 200
        assert len(plan) == order.counts.sum()


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def rows(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in batches(seed=seed).epoch(epoch)]

    assert rows(0, 1) == rows(0, 1)
    assert rows(0, 1) != rows(0, 2)
    assert rows(0, 1) != rows(1, 1)


def test_a_position_is_found_without_planning_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = [batch.tolist() for batch in batches().epoch(3)]
    order, sorted_shards = batches(), list[int]()
    steps = order.steps(3, 2)
    assert order.counts.sum() == len(reference)
    shard = order.shard

    def counted(n: int, epoch: int) -> list[np.ndarray]:
        sorted_shards.append(n)
        return shard(n, epoch)

    monkeypatch.setattr(order, "shard", counted)
    assert [rows.tolist() for rows in steps[len(steps) - 2]] == reference[2 * len(steps) - 4 : 2 * len(steps) - 2]
    assert len(sorted_shards) <= pieces_per_window()


def test_a_resumed_run_reads_the_number_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def order(tokens: int) -> ShardedBatches:
        edges = np.array([0, 130, 260, 500, 777, 900, 1000])
        return ShardedBatches(random_lengths(1000), edges, tokens, cache=tmp_path / "batches.json")

    first, other = order(200).counts.tolist(), order(100).counts.tolist()
    assert first != other
    assert order(200).counts.tolist() == first  # of other tokens: computed again
    monkeypatch.setattr(ShardedBatches, "cuts", None)
    assert order(200).counts.tolist() == first
    (tmp_path / "batches.json").write_text("{")
    monkeypatch.undo()
    assert order(200).counts.tolist() == first


def pieces_per_window() -> int:
    from clearformer.data.built.order import WINDOW

    return WINDOW


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_batches_are_the_same_on_one_two_and_four_ranks(corpus: Path, tmp_path: Path, ranks: int) -> None:
    build(corpus, tmp_path / "built")
    write_pointer(tmp_path / "train.safetensors", tmp_path / "built")
    store = open_pairs(tmp_path / "train.safetensors")
    assert isinstance(store, BuiltPairs)

    class Rows:
        is_drawn = False
        order = ShardedBatches(store.lengths, store.shards.edges, 100, seed=5)
        steps = order.steps

        def batch(self, rows: np.ndarray, key: tuple[int, int]) -> Any:
            return rows.tolist(), key

        def count(self, rows: np.ndarray) -> int:
            return len(rows)

    source: Any = Steps(Rows(), group=4)  # type: ignore[arg-type]
    alone = [source.load(1, i, World()) for i in range(source.count(1))]
    together = [[source.load(1, i, World(rank, ranks)) for rank in range(ranks)] for i in range(source.count(1))]
    for (whole, count), parts in zip(alone, together):
        assert sorted(whole) == sorted(batch for part, _ in parts for batch in part)
        assert {n for _, n in parts} == {count}


def test_a_run_on_a_built_folder_trains_and_resumes(corpus: Path, tmp_path: Path) -> None:
    build(corpus, tmp_path / "built")
    settings = ["model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=8", "model.d_ff=8"]
    settings += ["model.n_heads=1", "train.tokens=256", "train.validate_every=3", "evaluate.max_validation=2"]
    out = tmp_path / "run"
    whole = clearformer.train(pairs=tmp_path / "built", out=tmp_path / "whole", steps=3, settings=settings)
    with pytest.raises(Paused):
        clearformer.train(pairs=tmp_path / "built", out=out, steps=3, settings=[*settings, "train.pause=2"])
    report = clearformer.train(out=out, resume=True)
    assert report["steps"] == whole["steps"] == 3
    assert report["valid"] == whole["valid"]
    fingerprint = read_index(tmp_path / "built").fingerprint
    pointer = read_pointer(out / "data" / "train.safetensors")
    assert pointer == ((tmp_path / "built").resolve(), None, fingerprint, SHARDED)
    assert (out / "data" / "train.safetensors").stat().st_size < 1000  # the shards are not copied


def test_text_is_built_as_the_stream_that_a_run_prepares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.data.built import documents
    from clearformer.data.text import store_text

    monkeypatch.setattr(documents, "SHARD_CHARS", 2000)
    path = tmp_path / "lines.jsonl"
    texts = [pair.english for pair in generate(300)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    folder = tmp_path / "built"
    index = clearformer.build_data(folder, text=path, vocab_size=300)
    store = BuiltDocuments(folder)
    assert len(index["shards"]) > 3
    (tokenizer,) = load_tokenizers(RunFolder(folder), 1)
    corpora: Any = __import__("clearformer.data.corpora", fromlist=["x"]).StreamCorpora
    data = corpora.parse({"train": {"path": path}}, "x")
    whole = store_text(data.read("train"), tokenizer, tmp_path / "whole.safetensors", bos=True)
    assert np.array_equal(store.tokens[np.arange(len(store.tokens))], whole.tokens)
    assert np.array_equal(store.offsets, whole.offsets)
    assert store.start_id == whole.start_id
    settings = ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1", "model.max_length=64"]
    settings += ["train.tokens=64"]
    report = clearformer.train(text=folder, model="gpt", out=tmp_path / "run", steps=2, settings=settings)
    assert report["steps"] == 2
    with pytest.raises(DataError, match="stream of tokens"):
        clearformer.train(text=folder, model="bert", out=tmp_path / "bert", steps=2)


def test_a_folder_of_pairs_is_not_text(corpus: Path, tmp_path: Path) -> None:
    build(corpus, tmp_path / "built")
    with pytest.raises(DataError, match="built from pairs"):
        clearformer.train(text=tmp_path / "built", out=tmp_path / "run")


def test_a_damaged_index_is_an_error(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text('{"format": 1}')
    assert is_built(tmp_path)
    with pytest.raises(DataError, match=r"built\.json"):
        read_index(tmp_path)


def change(facts: dict[str, Any], how: str) -> Any:
    match how:
        case "no object":
            return [1]
        case "no shards":
            facts["shards"] = []
        case "a shard outside":
            facts["shards"][0]["name"] = "../train-00000"
        case "rows of another type":
            facts["shards"][0]["rows"] = "many"
        case "too many rows":
            facts["shards"][0]["rows"] = 10**30
        case "one side":
            facts["shards"][0]["tokens"] = [3]
        case "another kind":
            facts["kind"] = ["pairs"]
        case "a key too many":
            facts["more"] = 1
        case "files that are numbers":
            facts["files"] = {"valid.json": 7}
        case "a report of numbers":
            facts["report"] = [1]
    return facts


DAMAGES = ["no object", "no shards", "a shard outside", "rows of another type", "too many rows", "one side"]
DAMAGES += ["another kind", "a key too many", "files that are numbers", "a report of numbers"]


@pytest.mark.parametrize("how", DAMAGES)
def test_an_index_that_was_not_written_like_this_is_one_sentence(corpus: Path, tmp_path: Path, how: str) -> None:
    build(corpus, tmp_path / "built")
    path = tmp_path / "built" / INDEX
    path.write_text(json.dumps(change(json.loads(path.read_text()), how)))
    with pytest.raises(DataError, match=r"built\.json cannot be read") as error:
        clearformer.train(pairs=tmp_path / "built", out=tmp_path / "run")
    assert error.value.hint
    assert "\n" not in error.value.message


def test_numbers_that_do_not_fit_the_shards_are_an_error(corpus: Path, tmp_path: Path) -> None:
    build(corpus, tmp_path / "built")
    path = tmp_path / "built" / INDEX
    facts = json.loads(path.read_text())
    del facts["files"]  # as an earlier version wrote it
    facts["shards"][0]["rows"] += 1
    path.write_text(json.dumps(facts))
    with pytest.raises(DataError, match="lengths of"):
        _ = BuiltPairs(tmp_path / "built").lengths
    with pytest.raises(DataError, match="rows and tokens of the index"):
        BuiltPairs(tmp_path / "built").shards.open(0)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": 7}', "[" * 10**5, b"\xff"])
def test_a_damaged_address_is_one_sentence(corpus: Path, tmp_path: Path, content: Any) -> None:
    build(corpus, tmp_path / "built")
    path = tmp_path / "built" / "remote.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=r"remote\.json cannot be read"):
        BuiltPairs(tmp_path / "built")
    with pytest.raises(DataError, match=r"remote\.json cannot be read"):
        write_pointer(tmp_path / "train.safetensors", tmp_path / "built")


def read_all(folder: Path, data: Path) -> None:
    use_built(folder, data)
    store = BuiltPairs(folder)
    assert len(store.lengths)
    store.rows(np.arange(len(store)))


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["train-00002.safetensors", "lengths.safetensors", "valid.safetensors"])
def test_a_flipped_bit_of_a_built_folder_is_named(corpus: Path, tmp_path: Path, name: str) -> None:
    build(corpus, tmp_path / "built")
    assert clearformer.verify(tmp_path / "built")["faults"] == []
    flip(tmp_path / "built" / name)
    (fault,) = clearformer.verify(tmp_path / "built")["faults"]
    assert name in fault
    with pytest.raises(DataError, match=name):
        read_all(tmp_path / "built", tmp_path / "data")
    (tmp_path / "built" / name).unlink()
    assert "missing" in clearformer.verify(tmp_path / "built")["faults"][0]
    with pytest.raises(ConfigError, match="data build"):
        clearformer.verify(tmp_path / "built", accept=True)


def test_a_folder_that_is_built_again_is_noticed(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content, built again, continues a run; other content does not."""
    import shutil

    folder, pointer = tmp_path / "built", tmp_path / "train.safetensors"
    build(corpus, folder)
    write_pointer(pointer, folder)
    lines = corpus.read_text(encoding="utf-8")
    for text, is_same in ((lines, True), (lines.replace("a", "e"), False)):
        shutil.rmtree(folder)
        corpus.write_text(text, encoding="utf-8")
        build(corpus, folder)
        if is_same:
            assert len(open_pairs(pointer))
        else:
            with pytest.raises(DataError, match="was built again since this run was started"):
                open_pairs(pointer)
    write_pointer(pointer, folder)
    flip(folder / "tokenizer.json", 50)
    assert len(open_pairs(pointer))
    monkeypatch.setenv("CLEARFORMER_VERIFY", "1")
    with pytest.raises(DataError, match=r"tokenizer\.json is not what was built"):
        open_pairs(pointer)


def test_a_pointer_to_nothing_is_an_error(tmp_path: Path) -> None:
    from clearformer.data.built.folder import POINTER
    from clearformer.data.store import MARK
    from clearformer.data.tensor_file import TensorFileWriter

    TensorFileWriter(tmp_path / "train.safetensors", {}, {MARK: POINTER}).join()
    with pytest.raises(DataError, match="points to no folder"):
        open_pairs(tmp_path / "train.safetensors")


def test_a_remote_folder_is_fetched_when_it_is_needed(corpus: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    build(corpus, tmp_path / "built")
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path / "built") + "/", "/corpus/", recursive=True)
    folder = local_copy("memory://corpus")
    assert not list(folder.glob("train-*.safetensors"))
    store = BuiltPairs(folder)
    store.shards.prefetch([1])
    assert np.array_equal(store.rows(np.array([0, 1]))[0].lengths, BuiltPairs(tmp_path / "built").lengths[:2, 0])
    store.shards.open(1)
    assert {path.name for path in folder.glob("train-*.safetensors")} == {
        "train-00000.safetensors",
        "train-00001.safetensors",
    }
    with pytest.raises(DataError, match="has no built"):
        local_copy("memory://nothing")


def test_without_fsspec_the_hint_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(clearformer.ClearformerError, match=r"clearformer\[remote\]"):
        local_copy("s3://bucket/folder")
    assert Remote(tmp_path, "s3://bucket/folder").url == "s3://bucket/folder"
