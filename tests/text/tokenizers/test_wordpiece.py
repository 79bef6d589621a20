from clearformer.text import TextConfig, train_tokenizer

LINES = ["play playing played", "say saying", "I do not (really) play: isn't it a t-shirt?", "“Ja”, 23%."]


def test_words_begin_plain_and_continue_with_hashes() -> None:
    tokenizer = train_tokenizer(LINES, TextConfig(kind="wordpiece", vocab_size=103, strict=False))
    assert tokenizer.pieces(tokenizer.encode(["playing, saying"])[0]) == ["play", "##ing", ",", "say", "##ing"]


def test_a_word_with_an_unknown_character_is_unknown_whole() -> None:
    tokenizer = train_tokenizer(LINES, TextConfig(kind="wordpiece", vocab_size=103, strict=False))
    assert tokenizer.pieces(tokenizer.encode(["play plaÿ"])[0]) == ["play", "<unk>"]


def test_decoding_guesses_spaces_and_changes_nothing_else() -> None:
    tokenizer = train_tokenizer(LINES, TextConfig(kind="wordpiece", vocab_size=211, min_frequency=1, strict=False))
    assert tokenizer.decode(tokenizer.encode(LINES)) == LINES
    assert tokenizer.decode(tokenizer.encode(["play , say ."])) == ["play, say."]


def test_the_size_holds_even_when_characters_alone_would_fill_it() -> None:
    crowd = "".join(map(chr, range(0x4E01, 0x4E01 + 101)))
    assert train_tokenizer([crowd, *LINES], TextConfig(kind="wordpiece", vocab_size=53)).vocab_size <= 53
