"""Documents in parts: nothing is lost between them, and their tokens are those of the whole."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer.checkpoint import RunFolder
from clearformer.data import parts, sources, text
from clearformer.data.built import documents
from clearformer.data.built.folder import INDEX, read_index
from clearformer.data.built.stores import BuiltDocuments
from clearformer.data.corpora import SentenceCorpora, StreamCorpora
from clearformer.data.parts import Unfinished, cut_for, cut_place, in_parts, is_finished
from clearformer.data.sources import read_line_parts
from clearformer.data.store import DocumentWriter
from clearformer.data.text import TextSource, store_text, write_documents
from clearformer.errors import DataError
from clearformer.tasks.task import load_tokenizers
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

WORDS = [
    "the",
    "cat’s",
    "",
    "sat\ton",
    "a",
    "mat,",
    "isn't",
    "it?",
    "1234",
    "5.6",
    "naïve",
    "e\u0301te\u0301",
    "\u0301x",
]
WORDS += ["नमस्ते", "दुनिया", "🙂👍", "A.B.C.", "x=y;\n\n", "", "", "z", "吾輩は猫である。名前はまだ無い。"]


def prose(n: int, seed: int = 0) -> str:
    """Return n words: runs of white space, marks, joiners, numbers and line feeds among them."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, n).tolist())


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    configs = {kind: {"kind": kind} for kind in ("char", "word", "bpe", "byte-bpe", "wordpiece", "unigram")}
    configs |= {f"{kind} keep": {"kind": kind, "whitespace": "keep"} for kind in ("char", "byte-bpe")}
    configs["lower NFKC"] = {"kind": "bpe", "lowercase": True, "normalization": "NFKC"}
    lines = prose(3000).splitlines(keepends=True)
    return {
        name: train_tokenizer(lines, TextConfig(**{"vocab_size": 330, "strict": False, "min_frequency": 1, **config}))
        for name, config in configs.items()
    }


KINDS = ["char", "word", "bpe", "byte-bpe", "wordpiece", "unigram", "char keep", "byte-bpe keep", "lower NFKC"]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_parts_are_those_of_the_document(tokenizers, kind: str, tmp_path: Path, monkeypatch) -> None:
    """For every kind of tokenizer, and for long and short documents one after the other."""
    tokenizer, texts = tokenizers[kind], [prose(700, 1), "x", prose(40, 2), "", prose(900, 3)]
    cut = [*cut_for(tokenizer, texts, 200)]
    assert "".join(cut) == "".join(texts)
    assert sum(map(is_finished, cut)) == len(texts)
    assert len(cut) > 30
    assert max(map(len, cut)) <= 800
    whole = store_text(texts, tokenizer, tmp_path / "whole")
    assert (tmp_path / "whole").exists()
    monkeypatch.setattr(text, "cut_for", partial(cut_for, size=200))
    monkeypatch.setattr(text, "CHUNK", 500)
    stored = store_text(texts, tokenizer, tmp_path / "parts")
    assert np.array_equal(stored.tokens, whole.tokens)
    assert np.array_equal(stored.offsets, whole.offsets)
    pieces = [Unfinished(texts[0][:1000]), texts[0][1000:], *texts[1:4], Unfinished(texts[4][:3]), texts[4][3:]]
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    again = store_text(pieces, tokenizer, tmp_path / "pieces")
    assert np.array_equal(again.tokens, whole.tokens)


def test_a_cut_is_made_where_it_changes_nothing(tokenizers) -> None:
    """Not before one of several spaces, and not where the tokenizer adds a space to a text that has none."""
    tokenizer = tokenizers["byte-bpe keep"]
    assert cut_place(tokenizer, "one two  three", 14) == 3
    assert cut_place(tokenizer, "thethethe", 9) == 0  # inside a word
    assert cut_place(tokenizers["char keep"], "thethethe", 9) > 0
    assert cut_place(tokenizer, "नमस्ते दुनिया", 12) == 6
    assert cut_place(tokenizer, "吾輩は猫である。名前", 10) == 7  # beside the mark
    assert 0 < cut_place(tokenizers["char"], "one two three", 13) not in (3, 4, 7, 8)  # spaces at the ends are lost


def test_a_tokenizer_that_treats_beginnings_otherwise_has_whole_documents(
    tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that puts a space before every text, spaces before it or not; and then the limit holds."""
    content = json.loads(tokenizers["byte-bpe keep"].to_json())
    content["normalizer"] = {"type": "Prepend", "prepend": " "}
    tokenizer = Tokenizer(json.dumps(content))
    document = prose(500)
    assert list(cut_for(tokenizer, [document], 200)) == [document]
    monkeypatch.setattr(parts, "MAX_DOCUMENT", 1000)
    with pytest.raises(DataError, match="a document of more than 1,000 characters"):
        list(cut_for(tokenizer, [Unfinished(document), document], 200))


@pytest.mark.parametrize(
    "lines",
    [["a b\n"] * 9, ["\n"] * 9 + ["a\n"] * 9, ["a\n"] * 9 + ["  \n"] * 9, ["abcdefg\n"], ["a"], [" \n"] * 9, []],
)
def test_parts_of_lines_are_the_document(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 7)
    found = list(in_parts(lines))
    assert "".join(found) == ("".join(lines) if "".join(lines).strip() else "")
    assert [is_finished(part) for part in found] == [False] * (len(found) - 1) + [True] * bool(found)
    assert all(part.strip() for part in found[:1])


@pytest.mark.parametrize("continues", [False, True])
def test_a_document_whose_last_part_has_no_tokens_ends(
    tokenizers, tmp_path: Path, continues: bool, monkeypatch
) -> None:
    """Its EOS is written, before that of another store too; a document without any tokens is none."""
    monkeypatch.setattr(text, "cut_for", lambda tokenizer, documents: documents)  # as they are
    tok = tokenizers["word"]
    a, b = tok.encode(["the", "a"])
    parts_of_documents = [
        " ",
        Unfinished("the"),
        Unfinished(" "),
        " ",
        "a",
        " ",
        Unfinished(" "),
        "",
        Unfinished("a"),
        "",
    ]
    with DocumentWriter(tmp_path / "store", tok.vocab_size, tok.eos_id) as writer:
        write_documents(writer, tok, parts_of_documents, continues)
        store = writer.close()
    end = tok.eos_id
    assert store.tokens.tolist() == [end] * continues + [*a, end, *b, end, *b, end]
    assert store.offsets.tolist() == [0, 1, 3, 5, 7] if continues else [0, 2, 4, 6]


@pytest.fixture
def small_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of 300 bytes or more is very long."""
    monkeypatch.setattr(sources, "MAX_LINE", 300)
    monkeypatch.setattr(sources, "LINE_PART", 50)
    monkeypatch.setattr(sources, "READ", 40)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_very_long_line_comes_in_parts(small_lines: None, tmp_path: Path, encoding: str, end: str) -> None:
    long = re.sub(r"\s+", " ", prose(300))
    content = f"a b c\n{long}\n{'x y ' * 60}\n{'z' * 250}\n\n {long}{end}"
    (tmp_path / "a.txt").write_bytes(content.encode(encoding))
    found = list(read_line_parts(tmp_path / "a.txt"))
    assert "".join(found) == content
    assert "a b c\n" in found
    assert "x y " * 60 + "\n" in found  # below the limit: as it is
    assert 20 < len(found) < 200
    assert max(len(part.encode()) for part in found if part[:1] != "z" and part[:2] != "x ") <= 130
    with pytest.raises(DataError, match=r"a\.txt:2: a line of more than"):
        list(sources.read_lines(tmp_path / "a.txt"))


@pytest.mark.parametrize("n", range(50, 75))
def test_a_line_that_ends_where_it_becomes_very_long_comes_in_parts(small_lines: None, tmp_path: Path, n: int) -> None:
    """One read reaches the limit and the line end: the line must not be held against it as a whole."""
    content = f"a b\n{'word ' * n}\nc"
    (tmp_path / "a.txt").write_text(content)
    found = list(read_line_parts(tmp_path / "a.txt"))
    assert "".join(found) == content
    assert max(map(len, found)) < sources.MAX_LINE


def test_errors_of_a_very_long_line_have_their_place(small_lines: None, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n" + b"word " * 100 + b"caf\xe9 " + b"word " * 100)
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8 \(byte 504 of the line is 0xe9\)"):
        list(read_line_parts(path))
    path.write_bytes(b"word " * 100 + b"\nb\n" + b"a\0")
    with pytest.raises(DataError, match=r"a\.txt:3: binary data"):
        list(read_line_parts(path))
    path.write_bytes(b"word " * 100 + b"\nb\n" + b"a" * 400)
    with pytest.raises(DataError, match=r"a\.txt:3: a line of more than"):
        list(read_line_parts(path))


@pytest.mark.parametrize("held_out_test", [0.0, 0.13])
def test_splits_in_parts_are_those_of_the_document(tmp_path: Path, monkeypatch: Any, held_out_test: float) -> None:
    monkeypatch.setattr(parts, "PART", 100)
    paths = [tmp_path / name for name in ("a.txt", "b.txt", "c.txt")]
    for path, content in zip(paths, [prose(300), "short\r\none\r\n", prose(50, 1)]):
        path.write_text(content, newline="")
    data = StreamCorpora.parse({"train": {"path": paths}, "held_out": 0.21, "held_out_test": held_out_test}, "x")
    for split in ("train", "valid", "test") if held_out_test else ("train", "valid"):
        found, joined = list(data.parts(split)), [""]
        for part in found:
            joined[-1] += part
            joined += [""] * is_finished(part)
        assert joined[:-1] == list(data.read(split))
        assert joined[-1] == ""
        assert len(found) > len(joined) or split != "train"
    whole = SentenceCorpora.parse({"train": {"path": paths}}, "x")
    assert list(whole.parts("train")) == list(whole.read("train"))
    lines = StreamCorpora.parse({"train": {"path": paths, "documents": "line"}}, "x")
    assert list(lines.parts("valid")) == list(lines.read("valid"))


@pytest.fixture
def small_shards(small_lines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SHARD_CHARS", 400)
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 700)
    monkeypatch.setattr(parts, "PART", 64)


@pytest.mark.parametrize("kind", ["char", "byte-bpe"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_document_of_several_shards_has_the_tokens_of_the_whole(
    small_shards: None, tmp_path: Path, kind: str, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long documents before, between and after short ones; each is one document, wherever its shards end."""
    paths = []
    for number, n_words in enumerate((3, 600, 5, 400, 90, 7, 900)):
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(re.sub(r"\s+", " ", prose(n_words, number)) + "\n")
    settings = [f"text.kind={kind}", "text.min_frequency=1", f"data.joined={str(joined).lower()}"]
    folder = tmp_path / "built"
    index = clearformer.build_data(folder, text=paths, vocab_size=300, settings=settings)
    (tokenizer,) = load_tokenizers(RunFolder(folder), 1)
    monkeypatch.undo()
    data = StreamCorpora.parse({"train": {"path": paths}}, "x")
    whole = store_text(data.read("train"), tokenizer, tmp_path / "whole", bos=not joined)
    store = BuiltDocuments(folder)
    assert len(index["shards"]) > 12
    assert sum("before" in shard for shard in index["shards"]) > 8
    assert read_index(folder).dump() == {key: value for key, value in index.items() if key != "folder"}
    assert np.array_equal(store.tokens[:], whole.tokens)
    assert np.array_equal(store.offsets, whole.offsets)
    assert len(store) == len(whole) == 7
    at = np.arange(len(whole.tokens) + 2)
    assert all(map(np.array_equal, store.document_at(at), whole.document_at(at)))
    assert "in 7 documents" in index["report"][0]
    assert clearformer.verify(folder)["faults"] == []


def test_a_killed_build_of_one_line_is_continued(small_shards: None, tmp_path: Path) -> None:
    path, folder = tmp_path / "text8.txt", tmp_path / "built"
    path.write_text(re.sub(r"\s+", " ", prose(2000)))
    clearformer.build_data(folder, text=path, vocab_size=300)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    (folder / "building.json").write_text(json.dumps({"key": json.loads(before[INDEX])["tables"]["key"]}))
    for name in (INDEX, "train-00001.json", "train-00003.json", "train-00003.safetensors"):
        (folder / name).unlink()
    clearformer.build_data(folder, text=path, vocab_size=300)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.parametrize("before", [-1, 10**30, "many", 1.5, None])
def test_a_document_that_begins_nowhere_is_one_sentence(small_shards: None, tmp_path: Path, before: Any) -> None:
    path, folder = tmp_path / "text8.txt", tmp_path / "built"
    path.write_text(re.sub(r"\s+", " ", prose(700)))
    clearformer.build_data(folder, text=path, vocab_size=300)
    facts = json.loads((folder / INDEX).read_text())
    assert facts["shards"][1]["before"] == facts["shards"][0]["tokens"][0]
    facts["shards"][1]["before"] = before
    (folder / INDEX).write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"built\.json cannot be read"):
        read_index(folder)


def test_one_long_line_trains_as_its_words_do(small_lines: None, tmp_path: Path, monkeypatch: Any) -> None:
    """From the file, and from a built folder: the same tokens."""
    monkeypatch.setattr(parts, "PART", 64)
    path = tmp_path / "text8.txt"
    path.write_text(re.sub(r"\s+", " ", prose(900)))
    sizes = ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1", "model.max_length=31"]
    settings = [*sizes, "train.tokens=62", "text.kind=char", "text.min_frequency=1"]
    clearformer.train(text=path, model="gpt", out=tmp_path / "run", steps=2, settings=settings)
    (tokenizer,) = load_tokenizers(RunFolder(tmp_path / "run"), 1)
    content = path.read_text()
    monkeypatch.undo()
    [document] = TextSource(path=path).read()
    assert document == content
    data = StreamCorpora.parse({"train": {"path": path}}, "x")
    for split in ("train", "valid"):
        expected = store_text(data.read(split), tokenizer, tmp_path / split, bos=True)
        assert (tmp_path / "run" / "data" / f"{split}.safetensors").read_bytes() == expected.path.read_bytes()
    assert clearformer.evaluate(tmp_path / "run", text=path)["tokens"] == len(tokenizer.encode([content])[0]) + 1
