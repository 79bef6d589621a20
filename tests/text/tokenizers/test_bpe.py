import gzip
from pathlib import Path

import pytest

from clearformer.text import TextConfig, train_tokenizer
from clearformer.text.merges import watch
from clearformer.text.normalize import clean
from clearformer.text.tokenizers.bpe import marked

CORPORA = Path(__file__).parents[3].parent / "shared" / "data"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Hello, world !", "▁Hello|,|▁world|▁!"),
        (" Hello world!!", "▁Hello|▁world|!|!"),
        (" in 1984, x2", "▁in|▁1|9|8|4|,|▁x|2"),
        (" हिन्दी में लिखा।", "▁हिन्दी|▁में|▁लिखा|।"),
        (" क्\u200dष", "▁क्\u200dष"),
        (" नी\u0301 e\u0301te", "▁नी\u0301|▁e\u0301te"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert [word for word, _ in marked().pre_tokenize_str(text)] == words.split("|")


def test_merges_are_those_that_one_can_watch() -> None:
    """ids 4 and up: the alphabet in code-point order, then the merges in the order of the slow version."""
    tokenizer = train_tokenizer(["low " * 5 + "lower " * 2 + "lowest " * 3], TextConfig(vocab_size=4 + 8 + 5))
    steps = watch({"▁low": 5, "▁lower": 2, "▁lowest": 3}, n_merges=5)
    learned = ["".join(step.pair) for step in steps]
    assert tokenizer.pieces(range(4, 17)) == [*"elorstw▁", *learned]


def test_spaces_are_kept_apart_from_those_that_normalisation_collapses() -> None:
    lines = ["Hello, world !", "Hello,world!", "Hello world"]
    tokenizer = train_tokenizer(lines, TextConfig(vocab_size=47, strict=False))
    assert tokenizer.decode(tokenizer.encode([*lines, " Hello ,  world"])) == [*lines, "Hello , world"]
    assert tokenizer.decode(tokenizer.encode(["Hello▁world"])) == ["Hello world"]


def test_the_first_word_is_encoded_like_any_other() -> None:
    tokenizer = train_tokenizer(["the cat the"], TextConfig(vocab_size=47, strict=False))
    [ids] = tokenizer.encode(["  the the"])
    assert ids[: len(ids) // 2] == ids[len(ids) // 2 :]


CROWD = "".join(map(chr, range(0x4E00, 0x4E00 + 1009)))


def test_a_crowd_of_rare_characters_leaves_room_for_merges() -> None:
    tokenizer = train_tokenizer(["the cat sat " * 3 + CROWD], TextConfig(vocab_size=307, strict=False))
    assert tokenizer.vocab_size <= 307
    assert len(tokenizer.encode(["the cat"])[0]) == 2
    assert tokenizer.pieces(tokenizer.encode([CROWD[-2:]])[0]) == ["▁", "<unk>"]  # a run is one unknown


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_equally_rare_characters_stay_in_code_point_order(kind: str) -> None:
    tokenizer = train_tokenizer(["the cat sat " * 3 + CROWD[::-1]], TextConfig(kind=kind, vocab_size=307, strict=False))
    kept = [piece for piece in tokenizer.pieces(range(tokenizer.vocab_size)) if piece in CROWD]
    assert len(kept) > 100
    assert "".join(kept) == CROWD[: len(kept)]


def corpus(*path: str, column: int = 0) -> list[str]:
    file = CORPORA.joinpath(*path)
    if not file.exists():
        pytest.skip(f"{'/'.join(path)} is not here")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [line.split("\t")[column] for line in lines][:2003]


@pytest.mark.data
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "char"])
def test_real_text_comes_back(kind: str) -> None:
    lines = corpus("multi30k", "raw", "train.de.gz") + corpus("tatoeba-eng-hin", "hin.txt.gz", column=1)
    tokenizer = train_tokenizer(lines, TextConfig(kind=kind, vocab_size=2003, min_frequency=1))
    ids = tokenizer.encode(lines)
    assert tokenizer.decode(ids) == [clean(line) for line in lines]
    assert not any(tokenizer.unk_id in row for row in ids)


@pytest.mark.data
def test_text_that_was_split_beforehand() -> None:
    lines = corpus("multi30k", "revisit-mmt-bpe", "en-de", "train.de.gz")
    tokenizer = train_tokenizer(lines, TextConfig(kind="word", joiner="@@", vocab_size=20_011, min_frequency=1))
    assert tokenizer.decode(tokenizer.encode(lines)) == [clean(line).replace("@@ ", "") for line in lines]
