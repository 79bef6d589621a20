"""Remove random spans of a text for a model to predict (Raffel et al. 2020, section 3.1.4 and figure 2).

    text     Thank you for inviting me to your party last week
    source   Thank you <X> me to your party <Y> week
    target   <X> for inviting <Y> last <Z>

15 % of the tokens are removed, in spans of three on average. Each span is replaced by a different sentinel, and one
more sentinel ends the target. The number of removed tokens and of spans follows from the length of the text. The
positions are random: every division of the removed tokens into spans is equally probable, and so is every division of
the rest.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from clearformer.config import Config
from clearformer.errors import DataError
from clearformer.wording import count


class SpanConfig(Config):
    """Settings of span corruption, in the [objective] table of a recipe."""

    rate: float = Field(0.15, gt=0, lt=1, description="fraction of the tokens to remove")
    mean_length: float = Field(3.0, ge=1, description="mean length of a span, in tokens")


def drop_spans(
    tokens: Sequence[int] | np.ndarray, sentinels: Sequence[int], config: SpanConfig, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Remove random spans from the ids of a text. Returns the source and the target, without EOS.

    `sentinels` lists the ids of the sentinels in order of use. Of n tokens round(n · rate) are removed, but at least
    one. T5's code never removes the first token and always removes the last; here a span may be anywhere. There is at
    least one token between two spans.
    """
    if not len(tokens):
        raise DataError("an empty text has no spans to remove", "remove empty texts")
    n = len(tokens)
    n_removed, n_spans = span_counts(n, config)
    if n_spans >= len(sentinels):
        raise DataError(
            f"a text of {count(n, 'token')} needs {count(n_spans + 1, 'sentinel')}, "
            f"but the tokenizer has {len(sentinels)}",
            "add sentinels to the tokenizer, shorten the text, or set a larger objective.mean_length",
        )
    removed = compose(n_removed, n_spans, rng)  # (spans,)
    gaps = compose(n - n_removed + 2, n_spans + 1, rng)  # (spans + 1,): tokens before, between and after the spans
    gaps[0], gaps[-1] = gaps[0] - 1, gaps[-1] - 1  # these two may be empty
    runs = np.append(np.stack([gaps[:-1], removed], axis=1), gaps[-1])  # gap, span, gap ... gap
    is_removed = np.repeat(np.arange(len(runs)) % 2 == 1, runs)  # (n,)
    ids, marks = np.asarray(tokens, "int64"), np.asarray(sentinels[: n_spans + 1], "int64")
    # In the source a sentinel follows each gap; in the target it precedes each span, and the last one ends the target.
    source = np.insert(ids[~is_removed], np.cumsum(gaps[:-1]), marks[:-1])
    target = np.insert(ids[is_removed], np.append(np.cumsum(removed) - removed, n_removed), marks)
    return source.tolist(), target.tolist()


def span_counts(n: int, config: SpanConfig) -> tuple[int, int]:
    """Return the number of tokens to remove from a text of n tokens, and the number of spans."""
    n_removed = min(max(round(n * config.rate), 1), n)
    return n_removed, min(max(round(n_removed / config.mean_length), 1), n_removed, n - n_removed + 1)


def compose(total: int, n_parts: int, rng: np.random.Generator) -> np.ndarray:
    """Divide `total` into n_parts integers, each at least 1, drawn uniformly from all such divisions."""
    cuts = np.sort(rng.choice(total - 1, n_parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
