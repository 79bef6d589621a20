from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from clearformer.text.merges import merge, render, watch


def test_low_lower_lowest_by_hand() -> None:
    steps = watch({"low": 5, "lower": 2, "lowest": 3}, n_merges=5)
    assert [(step.pair, step.count) for step in steps] == [
        (("l", "o"), 10),  # ties with o + w, and l is older than o
        (("lo", "w"), 10),
        (("low", "e"), 5),
        (("s", "t"), 3),  # ties with lowe + s, and single characters are older
        (("lowe", "st"), 3),
    ]
    assert steps[2].words == {("low",): 5, ("lowe", "r"): 2, ("lowe", "s", "t"): 3}


def test_a_text_is_counted_and_merging_ends_with_whole_words() -> None:
    steps = watch("ab ab b", n_merges=7)
    assert [(step.pair, step.count) for step in steps] == [(("a", "b"), 2)]
    assert steps[0].words == {("ab",): 2, ("b",): 1}


def test_overlapping_pairs_merge_from_the_left() -> None:
    assert merge(("a", "a", "a"), ("a", "a")) == ("aa", "a")
    assert merge(("x", "a", "b", "a", "b"), ("a", "b")) == ("x", "ab", "ab")
    assert merge((), ("a", "b")) == ()


def test_render() -> None:
    assert render(watch({"low": 5, "lowest": 3}, n_merges=2)).splitlines() == [
        "start       l o w ×5  l o w e s t ×3",
        "1. l+o ×8   lo w ×5   lo w e s t ×3",
        "2. lo+w ×8  low ×5    low e s t ×3",
    ]
    assert render([]) == ""


def rust_merges(words: dict[str, int], n_merges: int) -> list[str]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    size = len({*"".join(words)}) + n_merges
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=1, show_progress=False)
    tokenizer.train_from_iterator([" ".join(Counter(words).elements())], trainer)
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)[-n_merges:]


def test_rust_learns_the_same_merges_where_nothing_ties() -> None:
    words = {"low": 11, "lower": 5, "newest": 7, "widest": 3, "sow": 2}
    steps = watch(words, n_merges=5)
    assert ["".join(step.pair) for step in steps] == rust_merges(words, 5)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 5), min_size=1, max_size=7))
def test_rust_learns_the_same_vocabulary_where_pairs_tie(words: dict[str, int]) -> None:
    grown = list(dict.fromkeys("".join(step.pair) for step in watch(words, n_merges=5)))
    learned = rust_merges(words, len(grown)) if grown else []
    assert learned == grown
