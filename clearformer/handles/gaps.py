"""Fill blanks in sentences: find which word is missing, and where.

    fill      ŵ = argmax_w  p(left w right)                    the position is known
    repair    (î, ŵ) = argmax_{i, w}  p(x_<i w x_≥i)           the position is unknown

A left-to-right model proposes words that could follow the left part and then scores the whole sentence with each of
them, so that the text after the blank counts as well. A masked model sees both sides at once: words for a blank are
ranked by their probability there, and repaired sentences by pseudo-log-likelihood. A sentence scorer judges the whole
sentence with each word.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, Protocol, runtime_checkable

from clearformer.errors import DataError
from clearformer.handles.inputs import one_or_many
from clearformer.handles.scorer import Score
from clearformer.handles.writer import Continuation
from clearformer.wording import count

BLANK = "___"
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
PROPOSALS = 192  # number of sampled continuations (with a fixed seed); their first words are the candidates
PER_POSITION = 8  # number of words that a masked model proposes for each position of a sentence to repair


class LeftToRight(Protocol):
    """A LanguageModel, or any other model that scores and continues texts."""

    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]: ...
    @property
    def generate(self) -> Callable[..., list[list[Continuation]]]: ...


@runtime_checkable
class Bidirectional(Protocol):
    """A MaskedModel, or any other model that scores texts and proposes and ranks words between two texts."""

    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]: ...
    def weigh(self, left: str, right: str, words: Iterable[str]) -> list[tuple[str, float]]: ...
    def propose(self, left: str, right: str, n: int = 50) -> list[tuple[str, float]]: ...


@dataclass(frozen=True)
class Filling:
    """A completed sentence and the word that was added.

    `position` counts the words before the added one. `logprob` is the log-probability of the sentence, or, where a
    masked model fills a blank, of the word. `probability` is relative to all candidates that were considered.
    """

    text: str
    word: str
    position: int
    logprob: float
    probability: float

    @property
    def share(self) -> float:
        """Deprecated: use `probability`."""
        warnings.warn("Filling.share is deprecated: use Filling.probability", DeprecationWarning, stacklevel=2)
        return self.probability


class GapFiller:
    """A handle that also fills blanks, as `fill` and `repair` do."""

    @one_or_many
    def fill(
        self: Any, texts: Sequence[str], n: int = 5, candidates: Iterable[str] | None = None
    ) -> list[list[Filling]]:
        """Return the n best words for the blank (written ___) in each text, the best first."""
        words = None if candidates is None else list(candidates)
        return [fill(self, text, n, words) for text in texts]

    @one_or_many
    def repair(self: Any, texts: Sequence[str], n: int = 5) -> list[list[Filling]]:
        """Return the n best ways to complete each sentence, which lacks one word, the best first."""
        return [repair(self, text, n) for text in texts]


def fill(
    model: LeftToRight | Bidirectional, text: str, n: int = 5, candidates: Iterable[str] | None = None
) -> list[Filling]:
    """Return the n best words for the blank (written ___) in a text."""
    left, blank, right = text.partition(BLANK)
    if not blank or BLANK in right:
        n_blanks = text.count(BLANK)
        raise DataError(
            f"{text!r} has {count(n_blanks, 'blank')}, but exactly one is required",
            f"write {BLANK} once, in place of the missing word",
        )
    position = len(left.split())
    if isinstance(model, Bidirectional):
        weighed = model.propose(left, right) if candidates is None else model.weigh(left, right, candidates)
        options = [(left + word + right, word, position) for word, _ in weighed]
        return with_probabilities(options, [logprob for _, logprob in weighed])[:n]
    words = list(candidates) if candidates is not None else propose(model, [left])[0]
    return ranked(model, [(left + word + right, word, position) for word in words])[:n]


def repair(model: LeftToRight | Bidirectional, text: str, n: int = 5) -> list[Filling]:
    """Return the n best ways to complete a sentence that lacks one word."""
    words = text.split()
    sides = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(len(words) + 1)]
    if isinstance(model, Bidirectional):
        proposals = [
            [word for word, _ in model.propose(f"{a} ".lstrip(), f" {b}".rstrip(), PER_POSITION)] for a, b in sides
        ]
    else:
        proposals = propose(model, [left for left, _ in sides])
    options = [(" ".join([*words[:i], word, *words[i:]]), word, i) for i, at_i in enumerate(proposals) for word in at_i]
    return ranked(model, options)[:n]


def propose(model: LeftToRight, lefts: Sequence[str], n: int = PROPOSALS) -> list[list[str]]:
    """Propose words to follow each text: the distinct first words of n sampled continuations."""
    prompts = [left.rstrip() for left in lefts]
    continuations = model.generate(prompts, n=n, seed=0, temperature=1.0, max_new=12)
    return [sorted({word for one in samples if (word := first_word(one.text))}) for samples in continuations]


def first_word(text: str) -> str | None:
    """Return the first word of a continuation; None if it may be incomplete or belongs to the prompt's last word."""
    match = re.match(r"\s+([^\W\d_]+(?:['’-][^\W\d_]+)*)(?=[\s.,;:!?])", text)
    return match[1] if match else None


def ranked(model: LeftToRight | Bidirectional, options: Sequence[tuple[str, str, int]]) -> list[Filling]:
    """Score the (text, word, position) options, and sort them with the best first."""
    return with_probabilities(options, [score.logprob for score in model.score([text for text, _, _ in options])])


def with_probabilities(options: Sequence[tuple[str, str, int]], scores: Sequence[float]) -> list[Filling]:
    """Sort the options with the best first, and normalise their probabilities: softmax(scores)."""
    highest = max(scores, default=0.0)
    total = sum(exp(score - highest) for score in scores)
    rows = [Filling(*option, score, exp(score - highest) / total) for option, score in zip(options, scores)]
    return sorted(rows, key=lambda row: -row.logprob)
