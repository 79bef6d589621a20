"""Which documents a source gives, and that none of their characters is lost on the way to disk."""

import gc
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer.data.store import DocumentStore, PairStore, StoreWriter
from clearformer.data.text import TextSource, chunks, store_text
from clearformer.errors import ConfigError, DataError
from clearformer.text import TextConfig, train_tokenizer

PLAY = "\n\nKING:\n  Who's there?\n \t\nQUEEN:\r\n\tNay,\u2028 answer me.  \n\n\n\nExit"
UNIX = PLAY.replace("\r\n", "\n")


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, content: str | bytes) -> Path:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


def read(path: Path | list[Path], **fields: Any) -> list[str]:
    return list(TextSource.parse({"path": path, **fields}, "x.toml: [data]").read())


@pytest.mark.parametrize("name", ["play.txt", "play.txt.gz"])
def test_what_a_document_is(write, name: str) -> None:
    path = write(name, PLAY)
    assert read(path) == [UNIX]
    assert read(path, documents="paragraph") == [
        "KING:\n  Who's there?",
        "QUEEN:\n\tNay,\u2028 answer me.  ",
        "Exit",
    ]
    assert read(path, documents="line") == [
        "KING:",
        "  Who's there?",
        "QUEEN:",
        "\tNay,\u2028 answer me.  ",
        "Exit",
    ]


@pytest.mark.parametrize("text", ["a", "a\n", "a\n\n", "\na \r b"])
def test_the_ends_of_a_file_are_kept(write, text: str) -> None:
    assert read(write("a.txt", text)) == [text]
    assert read(write("b.txt", "\ufeff" + text)) == [text]


@pytest.mark.parametrize("name", ["a.jsonl", "a.b.jsonl.gz"])
def test_an_object_is_a_file_of_its_own(write, name: str) -> None:
    path = write(name, "\n".join(["", *(json.dumps({"text": text, "n": 3}) for text in (PLAY, "two\nlines", " "))]))
    assert read(path) == [UNIX, "two\nlines"]
    assert read(path, documents="line")[-2:] == ["two", "lines"]
    assert len(read(path, documents="paragraph")) == 4


def test_several_files_in_order(write) -> None:
    paths = [write("b.txt", "b1\nb2"), write("c.jsonl", '{"body": "c"}'), write("a.txt.gz", "a")]
    assert read(paths, column="body", documents="line") == ["b1", "b2", "c", "a"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "is empty\nhint: .* one document"),
        ("a.txt", " \n\t\n", "is empty"),
        ("a.doc", "a\tb", r"unsupported file type\nhint: use a \.csv, .*\.txt"),
        ("a.tsv", "a\tb", "no column `text`\nhint: the columns are a, b; choose with --set data.train.column=NAME"),
        ("a.txt", b"caf\xe9", r"a\.txt:1: not UTF-8"),
        ("a.txt", b"a\nb\x00", r"a\.txt:2: binary data"),
        ("a.jsonl", '{"text": "a"}\n[1]', r"a\.jsonl:2: a JSON list"),
        ("a.jsonl", "null", r"a\.jsonl:1: a JSON NoneType"),
        ("a.jsonl", '{"body": "a"}', "no key `text`\nhint: the keys of the object are body"),
        ("a.jsonl", '{"text": 7}', "of type int, not a string\nhint: choose a key whose values are strings"),
    ],
)
def test_what_is_refused(write, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(name, content))


def test_paths_are_looked_at_before_anything_is_read(write) -> None:
    source = TextSource(path=(write("a.txt", "a"), Path("nowhere.txt")))
    with pytest.raises(DataError, match="does not exist"):
        source.read()
    with pytest.raises(ConfigError, match="path"):
        TextSource.parse({"path": []}, "x.toml: [data]")


def is_closed(path: Path) -> bool:
    files = (thing for thing in gc.get_objects() if type(thing) is io.BufferedReader and not thing.closed)
    return not any(str(getattr(file, "name", None)) == str(path) for file in files)


@pytest.mark.parametrize(("name", "content"), [("a.txt", "a\nb\nc"), ("a.jsonl", '{"text": "a"}\n{"text": "b"}\n[]')])
def test_files_are_closed_at_once(write, name: str, content: str) -> None:
    path = write(name, content)
    documents = TextSource(path=path, documents="line").read()
    assert next(documents) == "a"
    assert not is_closed(path)
    documents.close()
    assert is_closed(path)
    if name == "a.jsonl":
        with pytest.raises(DataError) as refused:
            read(path)
        assert is_closed(path)
        assert refused.tb  # which holds every frame, and so what they hold


def test_documents_come_back_from_disk(tmp_path: Path) -> None:
    documents = [UNIX, "x", "", "Exit KING", UNIX]
    tokenizer = train_tokenizer([UNIX], TextConfig(kind="char", whitespace="keep", min_frequency=1))
    store = store_text(iter(documents), tokenizer, tmp_path / "text.safetensors")
    assert (len(store), store.start_id) == (4, tokenizer.eos_id)
    assert store.metadata["tokenizer"] == tokenizer.fingerprint()
    rows = store.rows(np.array([3, 0, 2]))
    parts = np.split(rows.flat, np.cumsum(rows.lengths)[:-1])
    assert all(part[-1] == tokenizer.eos_id for part in parts)
    assert tokenizer.decode([part[:-1] for part in parts]) == [UNIX, UNIX, "Exit KING"]
    assert store_text(documents, tokenizer, tmp_path / "bos", bos=True).start_id == tokenizer.bos_id
    with pytest.raises(DataError, match="no documents to write"):
        store_text(["", ""], tokenizer, tmp_path / "none")
    if (maps := Path("/proc/self/maps")).exists():
        assert f"{store.path}\n" in maps.read_text()
    assert not store.tokens.flags.owndata


def test_a_store_of_pairs_is_none_of_documents(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "p", 17) as writer:
        writer.add([[1]], [[2]])
    with pytest.raises(DataError, match="does not contain prepared documents"):
        DocumentStore(tmp_path / "p")
    tokenizer = train_tokenizer(["ab"], TextConfig(kind="char", min_frequency=1))
    with pytest.raises(DataError, match="does not contain prepared pairs"):
        PairStore(store_text(["ab"], tokenizer, tmp_path / "d").path)


def test_chunks_hold_everything() -> None:
    assert list(chunks(["aa", "b", "cccc", "d", ""], 3)) == [["aa", "b"], ["cccc"], ["d", ""]]
    assert list(chunks([], 3)) == []
