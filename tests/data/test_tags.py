"""Files of labelled words to sentences, and sentences to rows whose words are judged by their first pieces."""

import gzip
from pathlib import Path
from random import Random

import numpy as np
import pytest

from clearformer.data.batch import IGNORE
from clearformer.data.corpora import TagCorpora
from clearformer.data.tags import Tagged, TagRows, TagSource, is_tagged, word_rows
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

ROWS = [Tagged(("EU", "rejects", "it"), ("ORG", "O", "O")), Tagged(("Peter",), ("PER",))]
KINDS = {"char": 97, "word": 97, "bpe": 41, "byte-bpe": 283, "wordpiece": 41, "unigram": 61}


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def read(path: Path, **columns: int | str) -> list[Tagged]:
    return list(TagSource.parse({"path": path, **columns}, "[data] train").read())


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.conll", "EU ORG\nrejects O\nit O\n\nPeter PER\n", {}),
        ("a.conll.gz", "\ufeffEU\tNNP\tORG\r\nrejects\tVBZ\tO\r\nit\tPRP\tO\r\n\r\n\r\nPeter\tNNP\tPER", {}),
        ("a.conll", "-DOCSTART- O -X-\n\nEU ORG x\nrejects O x\nit O x\n\nPeter PER x\n", {"labels": 1}),
        ("a.conll", "1 EU ORG\n2 rejects O\n3 it O\n\n1 Peter PER\n", {"words": 1, "labels": 2}),
        (
            "a.jsonl",
            '{"tokens": ["EU", "rejects", " it "], "labels": ["ORG", "O", "O"]}\n\n'
            '{"tokens": [], "labels": []}\n{"tokens": ["Peter"], "labels": ["PER"]}\n',
            {},
        ),
        (
            "a.jsonl",
            '{"w": ["EU", "rejects", "it"], "t": ["ORG", "O", "O"]}\n{"w": ["Peter"], "t": ["PER"]}\n',
            {"words": "w", "labels": "t"},
        ),
    ],
)
def test_every_form_of_file_says_the_same(write, name: str, text: str, columns) -> None:
    assert read(write(name, text), **columns) == ROWS


def test_numbers_in_json_are_labels(write) -> None:
    assert read(write("a.jsonl", '{"tokens": ["x"], "labels": [3]}'))[0].labels == ("3",)


@pytest.mark.parametrize(
    ("name", "text", "columns", "problem"),
    [
        ("a.conll", "EU NNP ORG\nrejects O\n", {}, "a.conll:2: 2 columns, but earlier lines have 3"),
        ("a.conll", "EU\n", {}, "a.conll:1: 1 column, but 2 are needed"),
        ("a.conll", "EU ORG\n", {"labels": 3}, "a.conll:1: 2 columns, but 4 are needed"),
        ("a.conll", "EU\t\n", {}, "a.conll:1: a label is empty"),
        ("a.conll", "EU ORG\n", {"labels": "ner"}, "`ner` is not a column of a .conll file"),
        ("a.conll", "\n\n", {}, "a.conll is empty"),
        ("a.jsonl", '{"tokens": ["EU"], "labels": []}', {}, "a.jsonl:1: 1 word but 0 labels"),
        ("a.jsonl", '{"tokens": ["EU"]}', {}, "a.jsonl:1: no key `labels`"),
        ("a.jsonl", '{"tokens": "EU", "labels": ["ORG"]}', {}, "a.jsonl:1: `tokens` is not a list of strings"),
        ("a.jsonl", '{"tokens": ["EU"], "labels": [null]}', {}, "a.jsonl:1: `labels` is not a list of strings"),
        ("a.jsonl", '{"tokens": [" "], "labels": ["O"]}', {}, "a.jsonl:1: a word is empty"),
        ("a.jsonl", "{}", {"words": 0}, "`0` is not a column of a .jsonl file"),
        ("a.tsv", "EU\tORG\n", {}, "a.tsv: unsupported file type for labelled words"),
    ],
)
def test_what_cannot_be_read_is_said(write, name: str, text: str, columns, problem: str) -> None:
    with pytest.raises(DataError) as caught:
        read(write(name, text), **columns)
    assert problem in caught.value.message
    assert caught.value.hint


def test_which_files_label_words(write) -> None:
    assert is_tagged(Path("no-such.conll.gz"))
    assert is_tagged(write("a.jsonl", '\n{"tokens": ["x"], "labels": ["y"]}'))
    assert not is_tagged(write("b.jsonl", '{"text": "x", "label": "y"}'))
    assert not is_tagged(write("c.jsonl", ""))
    assert not is_tagged(Path("no-such.tsv"))


def test_sentences_are_held_out_whole(write) -> None:
    path = write("a.conll", "".join(f"word{i} O\nagain X\n\n" for i in range(211)))
    data = TagCorpora.parse({"train": {"path": path}, "held_out": 0.2, "limit": 13}, "[data]")
    valid = data.read("valid")
    assert len(data.read("train")) == 13
    assert 25 < len(valid) < 60
    assert all(example.labels == ("O", "X") for example in valid)


# Rows


def sentences() -> list[list[str]]:
    draw = Random(5)
    return [["".join(draw.choices("abcdeé'", k=draw.randint(1, 7))) for _ in range(n)] for n in (1, 7, 13, 2, 29)]


def tokenizer_of(kind: str) -> Tokenizer:
    lines = [" ".join(words) for words in sentences()] * 3
    return train_tokenizer(lines, TextConfig(kind=kind, vocab_size=KINDS[kind], min_frequency=1, strict=False))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_tokens", [5, 11, 1000])
def test_every_word_has_a_piece_of_its_own_that_begins_it(kind: str, max_tokens: int) -> None:
    tok = tokenizer_of(kind)
    rows, places = word_rows(sentences(), tok, max_tokens)
    assert rows.lengths.max() <= max_tokens
    words = [word for sentence in sentences() for word in sentence]
    assert len(places) == len(words) == len(set(places.tolist()))
    assert (np.diff(places) > 0).all()
    for word, piece in zip(words, tok.pieces(rows.flat[places])):
        begun = piece.removeprefix("▁").replace("▁", "").removesuffix("</w>")
        assert word.encode().startswith(bytes.fromhex(begun.strip("⟨⟩")) if begun.startswith("⟨") else begun.encode())


def test_first_pieces_are_those_that_the_rust_library_finds() -> None:
    tok = tokenizer_of("wordpiece")
    rows, places = word_rows(sentences(), tok, 1000)
    ids, firsts = [], []
    for words in sentences():
        encoded = tok._rust.encode(words, is_pretokenized=True)
        firsts += [len(ids) + encoded.word_ids.index(i) for i in range(len(words))]
        ids += encoded.ids
    assert rows.flat.tolist() == ids
    assert places.tolist() == firsts


def test_a_sentence_that_is_too_long_goes_on_in_the_next_row() -> None:
    tok = train_tokenizer(["a b c d e"], TextConfig(kind="word", min_frequency=1))
    rows, places = word_rows([["a", "b", "c", "d", "e"], ["a"]], tok, 4)
    a, b, c, d, e = tok.encode(["a b c d e"])[0]
    bos, eos = tok.bos_id, tok.eos_id
    assert rows.flat.tolist() == [bos, a, b, eos, bos, c, d, eos, bos, e, eos, bos, a, eos]
    assert rows.lengths.tolist() == [4, 4, 3, 3]
    assert places.tolist() == [1, 2, 5, 6, 9, 12]
    with pytest.raises(DataError, match="rows of 2 tokens are too short for text"):
        word_rows([["a"]], tok, 2)


def test_a_word_of_which_nothing_is_left_is_judged_by_its_neighbour() -> None:
    tok = train_tokenizer(["ab cd"], TextConfig(kind="wordpiece", vocab_size=20, min_frequency=1, strict=False))
    _, places = word_rows([["ab", "\u0007", "cd"]], tok, 11)
    assert places[1] == places[2] > places[0]
    with pytest.raises(DataError, match="the tokenizer produces no tokens for"):
        word_rows([["\u0007"]], tok, 11)


def test_batches_have_a_label_where_a_word_begins(tmp_path: Path) -> None:
    tok = train_tokenizer(["abc ab"], TextConfig(kind="char", min_frequency=1))
    examples = [Tagged(("ab", "c"), ("X", "Y")), Tagged(("abc",), ("Y",))]
    TagRows.of(examples, np.array([0, 1, 1]), tok, 13).save(tmp_path / "rows.safetensors")
    rows = TagRows.load(tmp_path / "rows.safetensors")
    assert len(rows) == 2
    batch, no = rows.batch(np.array([1, 0]), tok.pad_id), IGNORE
    assert batch.labels is not None
    assert batch.labels.tolist() == [[no, 1, no, no, no, no], [no, 0, no, no, 1, no]]
    assert batch.tokens.shape == (2, 6)
    assert (batch.n_tokens, batch.classes) == (3, None)
    assert [rows.count(np.array(some)) for some in ([0], [1], [0, 1])] == [2, 1, 3]
