"""Gaps in sentences: which word is missing, and where.

    fill      ŵ = argmax_w  p(left w right)                    the place is known
    repair    (î, ŵ) = argmax_{i, w}  p(x_<i w x_≥i)           it is not

A model that reads from left to right proposes words by what it would say after the left part, and then judges each by
the whole sentence: what comes after the gap must follow from the word, too. A masked model sees both sides at once: a
gap's words are ranked by their probability there, and repaired sentences by pseudo-log-likelihood.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Protocol, runtime_checkable

from clearformer.errors import DataError
from clearformer.handles.scorer import Score
from clearformer.handles.writer import Continuation

GAP = "___"
PROPOSALS = 192  # continuations drawn to find words in; the same ones each time
PER_PLACE = 8  # words that a masked model proposes for each place of a sentence to repair


class Judge(Protocol):
    """A LanguageModel, or what else can score and continue texts as it does."""

    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]: ...
    @property
    def generate(self) -> Callable[..., list[list[Continuation]]]: ...


@runtime_checkable
class BothSided(Protocol):
    """A MaskedModel: words between two texts, with their log-probabilities; and scores of whole ones."""

    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]: ...
    def weigh(self, left: str, right: str, words: Iterable[str]) -> list[tuple[str, float]]: ...
    def propose(self, left: str, right: str, n: int = 50) -> list[tuple[str, float]]: ...


@dataclass(frozen=True)
class Filling:
    """A sentence with its gap filled: the word, before which word of the given text it stands, and log p of it all.

    `share` is the probability among the fillings that were considered.
    """

    text: str
    word: str
    position: int
    logprob: float
    share: float


def fill(model: Judge | BothSided, text: str, n: int = 5, candidates: Iterable[str] | None = None) -> list[Filling]:
    """The best n words for the gap, written ___, of a text."""
    left, gap, right = text.partition(GAP)
    if not gap or GAP in right:
        count = "no gap" if not gap else "several gaps, not one"
        raise DataError(f"{text!r} has {count}", f"write {GAP} for the missing word")
    at = len(left.split())
    if isinstance(model, BothSided):
        weighed = model.propose(left, right) if candidates is None else model.weigh(left, right, candidates)
        return shared([(left + word + right, word, at) for word, _ in weighed], [logprob for _, logprob in weighed])[:n]
    words = list(candidates) if candidates is not None else propose(model, [left])[0]
    return ranked(model, [(left + word + right, word, at) for word in words])[:n]


def repair(model: Judge | BothSided, text: str, n: int = 5) -> list[Filling]:
    """The best n ways to add a word to a sentence that lacks one."""
    words = text.split()
    sides = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(len(words) + 1)]
    if isinstance(model, BothSided):
        added = [[word for word, _ in model.propose(f"{a} ".lstrip(), f" {b}".rstrip(), PER_PLACE)] for a, b in sides]
    else:
        added = propose(model, [left for left, _ in sides])
    options = [(" ".join([*words[:i], word, *words[i:]]), word, i) for i, some in enumerate(added) for word in some]
    return ranked(model, options)[:n]


def propose(model: Judge, lefts: Sequence[str], n: int = PROPOSALS) -> list[list[str]]:
    """Words that the model would say after each text, whole ones only: something must come after them."""
    prompts = [left.rstrip() for left in lefts]
    continuations = model.generate(prompts, n=n, seed=0, temperature=1.0, max_new=12)
    return [sorted({word for one in some if (word := first_word(one.text))}) for some in continuations]


def first_word(text: str) -> str | None:
    """The first word of a continuation; None if it may go on, or if it is the rest of a word begun before."""
    match = re.match(r"\s+([^\W\d_]+(?:['’-][^\W\d_]+)*)(?=[\s.,;:!?])", text)
    return match[1] if match else None


def ranked(model: Judge | BothSided, options: Sequence[tuple[str, str, int]]) -> list[Filling]:
    return shared(options, [score.logprob for score in model.score([text for text, _, _ in options])])


def shared(options: Sequence[tuple[str, str, int]], scores: Sequence[float]) -> list[Filling]:
    """The best first, with the share of each among them all."""
    highest = max(scores, default=0.0)
    total = sum(exp(score - highest) for score in scores)
    rows = [Filling(*option, score, exp(score - highest) / total) for option, score in zip(options, scores)]
    return sorted(rows, key=lambda row: -row.logprob)
