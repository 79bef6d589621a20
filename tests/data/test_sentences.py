import numpy as np
import pytest

from clearformer.data.sentences import Sentences, lines, marked, store_sentences
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

DOCUMENTS = ["a b c\nd e\n\nf\ng h i j k l m", "n o\n \np", "q"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(DOCUMENTS, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


@pytest.fixture(scope="module")
def sentences(tokenizer: Tokenizer, tmp_path_factory) -> Sentences:
    store = store_sentences(DOCUMENTS, tokenizer, tmp_path_factory.mktemp("s") / "s.safetensors")
    return Sentences(store, tokenizer.eos_id)


def text(sentences: Sentences, tokenizer: Tokenizer, rows: np.ndarray) -> list[str]:
    flat, lengths = sentences.read(*rows.T)
    return tokenizer.decode([part.tolist() for part in np.split(flat, np.cumsum(lengths)[:-1])])


def test_sentences_and_documents_are_found_again(sentences: Sentences, tokenizer: Tokenizer) -> None:
    assert (len(sentences), sentences.n_text_tokens) == (7, 17)
    assert sentences.documents.tolist() == [0, 4, 6, 7]
    told = text(sentences, tokenizer, np.stack([sentences.starts[:-1], sentences.starts[1:]], 1))
    assert told == ["a b c", "d e", "f", "g h i j k l m", "n o", "p", "q"]


def test_full_rows_hold_every_word_once_and_one_document_each(sentences: Sentences, tokenizer: Tokenizer) -> None:
    rows = sentences.full(5)
    assert text(sentences, tokenizer, rows) == ["a b c d e", "f", "g h i j k", "l m", "n o p", "q"]
    for room in (1, 2, 3, 7, 11, 100):
        rows = sentences.full(room)
        assert (rows[1:, 0] == rows[:-1, 1]).all()
        assert (rows[0, 0], rows[-1, 1]) == (0, 17)
        assert (np.diff(rows, axis=1) <= room).all()


def test_runs_have_two_sentences_or_more(sentences: Sentences) -> None:
    assert sentences.runs(5).tolist() == [[0, 2], [2, 4], [4, 6]]
    assert sentences.runs(6).tolist() == [[0, 3], [2, 4], [4, 6]]  # f is in two: g … m may not be left alone
    assert sentences.runs(100).tolist() == [[0, 4], [4, 6]]
    assert sentences.runs(1).tolist() == [[0, 2], [2, 4], [4, 6]]


def test_sentences_are_lines_or_end_with_a_mark() -> None:
    assert lines("One. Two.\n\n Three") == ["One. Two.", " Three"]
    assert marked('He said: "No!" Then he left… A title\n\nIt is 3.5 m. (So.) End') == [
        'He said: "No!"', "Then he left…", "A title", "It is 3.5 m.", "(So.)", "End",
    ]  # fmt: skip
