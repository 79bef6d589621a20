"""Labelled files to examples, classes and batches."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from clearformer.data.collate import TokenBatches
from clearformer.data.corpora import LabelCorpora
from clearformer.data.labels import Labelled, LabelRows, LabelSource, label_value, named_columns, number_classes
from clearformer.errors import DataError
from clearformer.text import TextConfig, train_tokenizer

ROWS = [Labelled("a fine film", None, "good"), Labelled("so dull", None, "bad")]


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def read(path: Path, **columns) -> list[Labelled]:
    return list(LabelSource.parse({"path": path, **columns}, "[data] train").read())


def refused(path: Path, **columns) -> DataError:
    with pytest.raises(DataError) as caught:
        read(path, **columns)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.tsv", "a fine film\tgood\nso dull\tbad\n", {}),
        ("a.tsv.gz", "good\tx\ta  fine film\r\n\nbad\ty\tso dull\n", {"text": 2, "label": 0}),
        ("a.tsv", "\ufefflabel\ttext\ngood\ta fine film\nbad\tso dull", {"label": "label"}),
        ("a.jsonl", '{"text": "a fine film", "label": "good"}\n\n{"text": "so dull", "label": "bad"}\n', {}),
        ("a.jsonl", '{"t": "a fine film", "l": "good"}\n{"t": "so dull", "l": "bad"}\n', {"text": "t", "label": "l"}),
    ],
)
def test_every_form_of_file_says_the_same(write, name: str, text: str, columns) -> None:
    assert read(write(name, text), **columns) == ROWS


def test_two_columns_are_a_pair(write) -> None:
    """As the Microsoft paraphrases have it: a header, the label first, quotes that mean nothing."""
    path = write("a.tsv", '\ufeffQuality\t#1 String\t#2 String\n1\tHe said "so.\tSo he said.\n')
    columns = {"text": ["#1 String", "#2 String"], "label": "Quality"}
    assert read(path, **columns) == [Labelled('He said "so.', "So he said.", "1")]
    assert read(write("b.tsv", "x\ty\t0\n"), text=[0, 1], label=2) == [Labelled("x", "y", "0")]


def test_numbers_in_json_are_labels(write) -> None:
    path = write("a.jsonl", '{"text": "x", "label": 1}\n{"text": "y", "label": 2.5}\n{"text": "z", "label": true}\n')
    assert [row.label for row in read(path)] == ["1", "2.5", "True"]


def test_what_cannot_be_read_is_said(write) -> None:
    path = write("a.tsv", "fine\tgood\ndull\t \n")
    assert refused(path).message == f"{path}:2: the label is empty"
    assert refused(write("b.tsv", "fine good\n")).message.endswith("b.tsv:1: 1 column, but 2 are needed")
    assert refused(path, text="sentence", label=1).message.endswith("mix names and numbers")
    assert "no column `sentence`" in refused(path, text="sentence").message
    assert "unsupported file type" in refused(write("a.doc", "x,y\n")).message
    assert "have names, not numbers" in refused(write("a.jsonl", "{}"), text=0, label=1).message
    assert "no key `label`" in refused(write("a.jsonl", '{"text": "x"}')).message
    assert "is of type list" in refused(write("a.jsonl", '{"text": "x", "label": []}')).message
    assert "is empty" in refused(write("c.tsv", "\n\n")).message
    assert "does not exist" in refused(path.with_name("none.tsv")).message


def test_labels_become_their_places_and_strangers_are_named() -> None:
    assert number_classes(["good", "bad"], ["bad", "good"], "valid").tolist() == [1, 0]
    with pytest.raises(
        DataError, match="1 label in the validation data does not occur in the training data: `good`"
    ) as caught:
        number_classes(["good", "bad"], ["bad", "fair"], "valid")
    assert caught.value.hint == "the classes are bad, fair"


def test_a_regression_wants_numbers() -> None:
    assert label_value("-2.5e1") == -25.0
    for label in ("good", "nan", "inf"):
        with pytest.raises(DataError, match=f"`{label}` is not a number"):
            label_value(label)


@pytest.fixture
def many(write) -> Path:
    """Every text twice, with both labels."""
    return write("many.tsv", "".join(f"text {i}\t{label}\n" for i in range(211) for label in "ab"))


def test_texts_are_held_out_whole(many: Path) -> None:
    data = LabelCorpora.parse({"train": {"path": many}, "held_out": 0.2, "held_out_test": 0.1}, "[data]")
    train, valid, test = (data.read(split) for split in ("train", "valid", "test"))
    assert sorted(train + valid + test) == sorted(LabelSource(path=many).read())
    texts = [{example.text for example in part} for part in (train, valid, test)]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 211
    assert 60 < len(valid) < 110
    assert 20 < len(test) < 70


def test_a_limit_takes_the_first_of_a_shuffle(many: Path) -> None:
    def train(limit: int | None, seed: int = 0) -> list[Labelled]:
        return LabelCorpora.parse({"train": {"path": many}, "limit": limit}, "[data]").read("train", seed)

    assert train(13) == train(29)[:13]
    assert train(13) != train(13, seed=1)
    assert set(train(29)) <= set(train(None))
    limited = LabelCorpora.parse({"train": {"path": many}, "limit": 5}, "[data]")
    assert len(limited.read("valid")) > 5


def test_rows_are_framed_padded_and_come_back_from_disk(tmp_path: Path) -> None:
    tok = train_tokenizer(["abc" * 9], TextConfig(kind="char", min_frequency=1))
    examples = [Labelled("ab", "c", "x"), Labelled("abcabc", "abc", "y"), Labelled("", "", "y")]
    LabelRows.of(examples, np.array([0, 1, 1]), tok, 7).save(tmp_path / "rows.safetensors")
    rows = LabelRows.load(tmp_path / "rows.safetensors")
    batch = rows.batch(np.array([1, 0]), tok.pad_id)
    a, b, c = tok.encode(["abc"])[0]
    bos, eos, pad = tok.bos_id, tok.eos_id, tok.pad_id
    assert batch.tokens.tolist() == [[bos, a, b, eos, a, b, eos], [bos, a, b, eos, c, eos, pad]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0]]
    assert batch.mask.tolist() == [[True] * 7, [True] * 6 + [False]]
    assert (batch.classes.tolist(), batch.n_tokens, batch.labels) == ([1, 0], 2, None)
    alone = rows.batch(np.array([2]), tok.pad_id)
    assert (alone.tokens.tolist(), alone.mask) == ([[bos, eos, eos]], None)


def test_batches_keep_their_budget(many: Path) -> None:
    lengths = np.random.default_rng(0).integers(3, 40, 211)
    batches = TokenBatches(np.stack([lengths - 1] * 2, 1), 128, seed=5)
    assert all(len(rows) * lengths[rows].max() <= 128 for rows in batches.epoch(3))
    assert json.dumps([rows.tolist() for rows in batches.epoch(3)]) == json.dumps(
        [rows.tolist() for rows in TokenBatches(np.stack([lengths - 1] * 2, 1), 128, seed=5).epoch(3)]
    )


@pytest.mark.parametrize(
    ("name", "header", "columns"),
    [
        ("a.tsv", "sentence\tlabel", {"text": "sentence", "label": "label"}),
        ("a.tsv.gz", "\ufefflabel\tid\ttext", {"text": "text", "label": "label"}),
        ("a.tsv", "index\tsentence1\tsentence2\tlabel", {"text": ("sentence1", "sentence2"), "label": "label"}),
        ("a.tsv", "review\tlabel", {"text": "review", "label": "label"}),
        ("a.tsv", "a fine film\tgood", {}),
        ("a.jsonl", '{"label": 1}', {}),
    ],
)
def test_a_header_that_names_the_label_is_believed(write, name: str, header: str, columns) -> None:
    assert named_columns(write(name, f"{header}\nx\ty\tz\n")) == columns
    assert named_columns(Path("no-such.tsv")) == {}
