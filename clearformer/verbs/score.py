"""score: rank texts by their probability."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, overload

from clearformer.handles.scorer import Score
from clearformer.verbs.load import load_for


class Ranker(Protocol):
    """The interface that `score` needs from a handle."""

    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]: ...

    def score_each(
        self, texts: Sequence[str], source: str | Sequence[str] | None = None, closed: bool | None = None
    ) -> list[Score]: ...


@overload
def score(  # type: ignore[overload-overlap]
    model: str | Path, texts: str, *, source: str | None = None, closed: bool | None = None, device: str = "cpu"
) -> dict[str, Any]: ...
@overload
def score(
    model: str | Path,
    texts: Sequence[str],
    *,
    source: str | None = None,
    closed: bool | None = None,
    device: str = "cpu",
) -> list[dict[str, Any]]: ...
def score(
    model: str | Path,
    texts: str | Sequence[str],
    *,
    source: str | None = None,
    closed: bool | None = None,
    device: str = "cpu",
) -> dict[str, Any] | list[dict[str, Any]]:
    """Rank texts, the most probable first. Returns a row for each with text, logprob, tokens and perplexity.

    A single text gives a single row. A language model scores each text alone; a translator scores it as a translation
    of `source`, including the end-of-text token. A masked model gives pseudo-log-likelihoods (handles/masked_model.py),
    which are only comparable with one another. A sentence scorer gives the log-probability that a text has no error.
    `closed` says whether a language model counts the end-of-text token; None means the same as in training.
    """
    is_single = isinstance(texts, str)
    ranker: Ranker = load_for("score", model, device)
    rows = [as_row(row) for row in ranker.rank([str(texts)] if is_single else texts, source, closed)]
    return rows[0] if is_single else rows


def as_row(score: Score) -> dict[str, Any]:
    return {**asdict(score), "perplexity": score.perplexity}
