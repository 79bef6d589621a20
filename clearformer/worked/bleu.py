"""BLEU by numbers: The ball is blue."""

from collections.abc import Iterator
from math import exp, sqrt

from clearformer.evaluation.metrics.bleu import Bleu, bleu_from_tokens, count_ngrams
from clearformer.worked.example import Figure, worked

COURSE = "deep-learning course, 13/04"
BLUE, COLOR = "The ball is blue", "The ball has a blue color"


def score(hypothesis: str, *references: str, weights: tuple[float, ...] = (0.5, 0.5)) -> Bleu:
    return bleu_from_tokens([hypothesis.split()], [[reference.split() for reference in references]], weights)


@worked("ball", "The ball is blue: precision, brevity penalty, BLEU", f"{COURSE}, l.1073-1148", bleu_from_tokens)
def ball() -> Iterator[Figure]:
    for order, grams in ((1, ["The", "ball", "is", "blue"]), (2, ["The ball", "ball is", "is blue"]),
                     (3, ["The ball is", "ball is blue"])):  # fmt: skip
        yield Figure(f"{order}-grams", [" ".join(gram) for gram in count_ngrams(BLUE.split(), order)], grams)
    bleu = score(BLUE, COLOR)
    yield Figure("p₁", bleu.precisions[0], 3 / 4)
    yield Figure("p₂", bleu.precisions[1], expected=1 / 3)
    yield Figure("geometric mean with w = ½, ½", bleu.score / bleu.brevity_penalty / 100, sqrt(3 / 4 * 1 / 3))
    yield Figure("brevity penalty e^(1 − 6/4)", bleu.brevity_penalty, exp(1 - 6 / 4))
    yield Figure("BLEU of two orders", bleu.score, expected=100 * exp(-0.5) * 0.5)


@worked("clipping", "repeated words, and two references", f"{COURSE}, l.1083-1114", bleu_from_tokens)
def clipping() -> Iterator[Figure]:
    def p1(hypothesis: str, *references: str) -> float:
        return score(hypothesis, *references, weights=(1.0,)).precisions[0]

    overlap = sum(word in COLOR.lower().split() for word in ("the", "ball", "the", "ball")) / 4
    yield Figure("The ball the ball: plain overlap", overlap, 1.0)
    yield Figure("The ball the ball: clipped precision", p1("the ball the ball", COLOR.lower()), 2 / 4)
    yield Figure("the the the ball", p1("the the the ball", "the ball is red"), 2 / 4)
    slip = "a count is clipped to the most in any one reference, which can be more than 1"
    yield Figure(
        "the the the ball, `the` twice in the reference",
        p1("the the the ball", "the ball by the wall"),
        2 / 4,
        3 / 4,
        slip,
    )
    references = ("the ball is red", "the red ball")
    yield Figure("with two references: counts are not added", p1("the the the ball", *references), 2 / 4)
    both = score(BLUE, COLOR, "The ball looks blue")
    yield Figure("The ball is blue with a second reference: p₁ and p₂", list(both.precisions), expected=[3 / 4, 1 / 3])
    yield Figure("the length that counts is the closest", both.reference_length, expected=4)
    yield Figure("brevity penalty", both.brevity_penalty, expected=1.0)
