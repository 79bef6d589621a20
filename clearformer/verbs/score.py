"""score: rank texts by their probability."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from clearformer.handles.scorer import Score
from clearformer.verbs.load import load_for


class Ranker(Protocol):
    """The interface that `score` needs from a handle."""

    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]: ...

    def score_each(
        self, texts: Sequence[str], source: str | Sequence[str] | None = None, closed: bool | None = None
    ) -> list[Score]: ...


def score(
    model: str | Path,
    texts: Sequence[str],
    *,
    source: str | None = None,
    closed: bool | None = None,
    device: str = "cpu",
) -> list[dict[str, Any]]:
    """Rank texts, the most probable first. Returns a row for each with text, logprob, tokens and perplexity.

    A language model scores each text alone; a translator scores it as a translation of `source`, including the
    end-of-text token. A masked model gives pseudo-log-likelihoods (handles/masked_model.py), which are only comparable
    with one another. A sentence scorer gives the log-probability that a text has no error. `closed` says whether a
    language model counts the end-of-text token; None means the same as in training.
    """
    ranker: Ranker = load_for("score", model, device)
    return [as_row(row) for row in ranker.rank(texts, source, closed)]


def as_row(score: Score) -> dict[str, Any]:
    return {**asdict(score), "perplexity": score.perplexity}
