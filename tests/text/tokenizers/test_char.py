from clearformer.text import TextConfig, train_tokenizer


def test_characters_by_frequency_then_code_point() -> None:
    tokenizer = train_tokenizer(["a cab", "bad a"], TextConfig(kind="char", vocab_size=8, min_frequency=1))
    assert tokenizer.pieces(range(4, tokenizer.vocab_size)) == ["a", "▁", "b", "c"]  # d fell out
    assert tokenizer.pieces(tokenizer.encode(["a bad"])[0]) == ["a", "▁", "b", "a", "<unk>"]


def test_rare_characters_are_left_out() -> None:
    tokenizer = train_tokenizer(["aab"], TextConfig(kind="char", min_frequency=2))
    assert tokenizer.pieces(range(tokenizer.vocab_size)) == ["<pad>", "<bos>", "<eos>", "<unk>", "a"]


def test_kept_white_space_comes_back() -> None:
    play = "KING:\n  Who's  there?\n\nQUEEN:\n\tNay, answer me. \n\n"
    tokenizer = train_tokenizer([play], TextConfig(kind="char", whitespace="keep", min_frequency=1))
    assert tokenizer.decode(tokenizer.encode([play, "\n", ""])) == [play, "\n", ""]
    assert tokenizer.pieces(tokenizer.encode(["\n\n \t"])[0]) == ["↵", "↵", "▁", "⇥"]
    assert tokenizer.vocab_size == 4 + len(set(play))
