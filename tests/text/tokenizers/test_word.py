from pathlib import Path

from transformers import PreTrainedTokenizerFast

from clearformer.text import TextConfig, train_tokenizer


def test_words_are_what_stands_between_spaces() -> None:
    tokenizer = train_tokenizer(["the cat . the dog", "the cat ,\tdog,"], TextConfig(kind="word"))
    assert tokenizer.pieces(range(4, tokenizer.vocab_size)) == ["the", "cat"]
    assert tokenizer.pieces(tokenizer.encode(["the  cat, the cat"])[0]) == ["the", "<unk>", "the", "cat"]


def test_joiner_here_and_in_hugging_face(tmp_path: Path) -> None:
    text = "ein@@ es hund@@ e@@ s @ haus@@"
    tokenizer = train_tokenizer([text], TextConfig(kind="word", joiner="@@", min_frequency=1))
    ids = tokenizer.encode([text])
    assert tokenizer.decode(ids) == ["eines hundes @ haus"]
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert theirs.decode(ids[0]) == "eines hundes @ haus"


def test_a_joiner_that_looks_like_a_pattern() -> None:
    tokenizer = train_tokenizer(["a.* b c"], TextConfig(kind="word", joiner=".*", min_frequency=1))
    assert tokenizer.decode(tokenizer.encode(["a.* b c"])) == ["ab c"]


def test_an_unk_in_the_text_is_the_unknown_token() -> None:
    """The Penn Treebank spells its rare words <unk>, and often."""
    tokenizer = train_tokenizer(["the <unk> <unk> <unk> the"], TextConfig(kind="word"))
    assert tokenizer.pieces(range(tokenizer.vocab_size)) == ["<pad>", "<bos>", "<eos>", "<unk>", "the"]
    assert tokenizer.encode(["the <unk>"]) == [[4, 3]]


def test_a_special_token_in_the_text_takes_no_words_place() -> None:
    lines = ["the <unk> <unk> a b the"]
    full = train_tokenizer(lines, TextConfig(kind="word", min_frequency=1, vocab_size=7))
    assert full.pieces(range(full.vocab_size)) == ["<pad>", "<bos>", "<eos>", "<unk>", "the", "a", "b"]
    less = train_tokenizer(lines, TextConfig(kind="word", min_frequency=1, vocab_size=6))
    assert less.pieces(range(less.vocab_size))[4:] == ["the", "a"]
