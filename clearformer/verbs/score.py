"""score: how likely a model finds texts."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from clearformer.handles.scorer import Score
from clearformer.verbs.load import load_for


class Ranker(Protocol):
    """What `score` asks of a handle."""

    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]: ...


def score(
    model: str | Path,
    texts: Sequence[str],
    *,
    source: str | None = None,
    closed: bool | None = None,
    device: str = "cpu",
) -> list[dict[str, Any]]:
    """Texts ranked by their probability: text, logprob, tokens, perplexity, the likeliest first.

    A language model judges the texts by themselves, a translator as translations of `source`, their ends included. A
    masked model gives pseudo-log-likelihoods (handles/masked_model.py), which compare with one another only; a sentence
    scorer the log-probability that nothing is wrong with a text.
    """
    ranker: Ranker = load_for("score", model, device)
    return [{**asdict(row), "perplexity": row.perplexity} for row in ranker.rank(texts, source, closed)]
