import gc
from math import exp, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.metrics.bleu import TOKENIZERS, bleu_from_tokens, corpus_bleu, exponential, unsmoothed

SMOOTHINGS = {"exp": exponential, "none": unsmoothed}
WEIGHTS = {order: (1 / order,) * order for order in (1, 2, 4, 5)}


def split(*sentences: str) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


def test_ball_is_blue() -> None:
    """Three of four words, one of three pairs ("The ball"), and 4 words where 6 were wanted."""
    bleu = bleu_from_tokens(split("The ball is blue"), [split("The ball has a blue color")], weights=(0.5, 0.5))
    assert bleu.precisions == (3 / 4, 1 / 3)
    assert (bleu.hypothesis_length, bleu.reference_length) == (4, 6)
    assert bleu.brevity_penalty == pytest.approx(exp(1 - 6 / 4))
    assert bleu.score == pytest.approx(100 * exp(-0.5) * sqrt(3 / 4 * 1 / 3))


@pytest.mark.parametrize(
    ("hypothesis", "references", "p1"),
    [
        ("the the the ball", ["the ball is red"], 2 / 4),  # one `the`, one `ball`
        ("the the the ball", ["the ball by the wall"], 3 / 4),  # clipped to two, not to one
        ("the the the ball", ["the ball is red", "the red ball"], 2 / 4),  # references do not add up
        ("the the the ball", ["a red ball", "the bat hit the wall"], 3 / 4),  # the larger count of either
        ("the ball the ball", ["the ball has a blue color"], 2 / 4),
    ],
)
def test_counts_are_clipped_to_the_most_in_any_one_reference(hypothesis: str, references: list[str], p1: float) -> None:
    assert bleu_from_tokens(split(hypothesis), [split(*references)], weights=(1.0,)).precisions == (p1,)


def test_closest_reference_length_and_the_shorter_of_a_tie() -> None:
    bleu = bleu_from_tokens(split("a b c"), [split("a", "a b c d e", "a b c d e f g")], weights=(1.0,))
    assert bleu.reference_length == 1
    assert bleu.brevity_penalty == 1.0


def test_precisions_are_of_the_corpus_not_means_of_sentences() -> None:
    bleu = bleu_from_tokens(split("a", "b b b"), [split("a"), split("c c c")], weights=(1.0,))
    assert bleu.precisions == (1 / 4,)


def test_exponential_smoothing_halves_at_each_missing_order() -> None:
    assert exponential([3, 0, 0, 0], [4, 3, 2, 0]) == [3 / 4, 1 / 2 / 3, 1 / 4 / 2, 0.0]
    assert exponential([0, 0], [5, 3]) == [0.0, 0.0]


def test_an_order_of_no_weight_cannot_zero_the_score() -> None:
    assert bleu_from_tokens(split("a b"), [split("a b")], weights=(1.0, 0.0, 0.0), smooth=unsmoothed).score == 100.0


TOKENS = st.lists(st.sampled_from("abc"), max_size=7)


@given(data=st.data(), order=st.sampled_from(sorted(WEIGHTS)), smooth=st.sampled_from(sorted(SMOOTHINGS)))
@settings(max_examples=200, deadline=None)
def test_agrees_with_sacrebleu(data: st.DataObject, order: int, smooth: str) -> None:
    """Empty lines, lines shorter than the order, one to three references of any length."""
    n_references = data.draw(st.integers(1, 3))
    segment = st.tuples(TOKENS, st.lists(TOKENS, min_size=n_references, max_size=n_references))
    segments = data.draw(st.lists(segment, min_size=1, max_size=5))
    hypotheses, references = [h for h, _ in segments], [r for _, r in segments]

    ours = bleu_from_tokens(hypotheses, references, WEIGHTS[order], SMOOTHINGS[smooth])
    theirs = BLEU(tokenize="none", smooth_method=smooth, max_ngram_order=order, force=True).corpus_score(
        [" ".join(h) for h in hypotheses], [[" ".join(r) for r in stream] for stream in zip(*references)]
    )
    assert ours.score == pytest.approx(theirs.score, abs=1e-9, rel=0)
    assert [100 * p for p in ours.precisions] == pytest.approx(theirs.precisions, abs=1e-9, rel=0)
    assert ours.brevity_penalty == pytest.approx(theirs.bp, abs=1e-12)
    assert (ours.hypothesis_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)


def test_corpus_bleu_is_sacrebleu_with_its_signature() -> None:
    hypotheses, references = ["the ball is blue.", "hello, world!"], [["the ball is blue!", "Hello, world!"]]
    score = corpus_bleu(hypotheses, references)
    by_hand = bleu_from_tokens(
        split("the ball is blue .", "hello , world !"), [split("the ball is blue !"), split("Hello , world !")]
    )
    assert score.value == pytest.approx(by_hand.score)
    assert score.name == "BLEU"
    assert "tok:13a" in score.signature
    assert str(score).startswith(f"BLEU {score.value:.2f} (nrefs:1|")
    lowered = corpus_bleu(hypotheses, references, lowercase=True)
    assert lowered.value > score.value
    assert "case:lc" in lowered.signature


def test_a_perfect_translation_scores_100() -> None:
    lines = ["यह एक बहुत छोटा घर है।"]
    assert corpus_bleu(lines, [lines], tokenize="intl").value == pytest.approx(100)


def test_mistakes_are_explained_with_counts() -> None:
    with pytest.raises(DataError, match="2 hypotheses but 3 references in list 2 of 2"):
        corpus_bleu(["a", "b"], [["a", "b"], ["a", "b", "c"]])
    with pytest.raises(DataError, match="from 0 hypotheses and 1 list of references"):
        corpus_bleu([], [[]])
    with pytest.raises(DataError, match="is a string"):
        corpus_bleu(["a", "b"], ["ab"])
    with pytest.raises(DataError, match="3 hypotheses but references for 1"):
        bleu_from_tokens(split("a", "b", "c"), [split("a"), [], []])
    with pytest.raises(ConfigError, match="did you mean `intl`"):
        corpus_bleu(["a"], [["a"]], tokenize="int")


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_no_tokenizer_outlives_its_score(tokenize: str) -> None:
    """sacrebleu caches sentences by tokenizer: a process that evaluated for an hour grew by 100 MB."""

    def n_tokenizers() -> int:
        gc.collect()
        return sum(
            issubclass(type(value), BaseTokenizer) for value in gc.get_objects()
        )  # isinstance would run properties

    before = n_tokenizers()
    for i in range(3):
        corpus_bleu([f"the cat sat {i}"], [["the cat sat"]], tokenize)
    assert n_tokenizers() <= before
