"""Drop a few spans of a text and have them said again in order (Raffel et al. 2020, section 3.1.4 and figure 2).

    text     Thank you for inviting me to your party last week
    source   Thank you <X> me to your party <Y> week
    target   <X> for inviting <Y> last <Z>

15 % of the tokens go, in spans of three on average; each leaves a sentinel of its own, and one more ends the target.
How many go, in how many spans, the length of the text says. Where they fall is drawn: every way to cut the lost tokens
into that many spans is as likely as any other, and so is every way to set them apart.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from clearformer.config import Config
from clearformer.errors import DataError


class SpanConfig(Config):
    """[spans]"""

    rate: float = Field(0.15, gt=0, lt=1, description="share of the tokens that go")
    mean_length: float = Field(3.0, ge=1, description="tokens of a span, on average")


def drop_spans(
    tokens: Sequence[int] | np.ndarray, sentinels: Sequence[int], config: SpanConfig, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """One text's ids -> source and target, without EOS. sentinels: their ids, in order of use.

    Of n tokens round(n · rate) go, at least one. Unlike in T5's own code, which always keeps the first token and drops
    the last, a span may stand anywhere; two spans have a token between them.
    """
    if not len(tokens):
        raise DataError("an empty text has no span to lose", "leave empty texts out")
    n = len(tokens)
    n_lost, n_spans = count(n, config)
    if n_spans >= len(sentinels):
        raise DataError(
            f"a text of {n} tokens loses {n_spans} spans, which takes {n_spans + 1} sentinels, not {len(sentinels)}",
            "give the tokenizer more sentinels, cut the text, or make the spans longer",
        )
    lost = compose(n_lost, n_spans, rng)  # (spans,)
    kept = compose(n - n_lost + 2, n_spans + 1, rng)  # (spans + 1,): before, between and after them
    kept[0], kept[-1] = kept[0] - 1, kept[-1] - 1  # these two may be empty
    runs = np.append(np.stack([kept[:-1], lost], axis=1), kept[-1])  # kept, lost, kept ... kept
    is_lost = np.repeat(np.arange(len(runs)) % 2 == 1, runs)  # (n,)
    ids, marks = np.asarray(tokens, "int64"), np.asarray(sentinels[: n_spans + 1], "int64")
    # A sentinel comes after each run that is kept, and before each that is lost; the last closes the target.
    source = np.insert(ids[~is_lost], np.cumsum(kept[:-1]), marks[:-1])
    target = np.insert(ids[is_lost], np.append(np.cumsum(lost) - lost, n_lost), marks)
    return source.tolist(), target.tolist()


def count(n: int, config: SpanConfig) -> tuple[int, int]:
    """How many of n tokens go, and in how many spans."""
    n_lost = min(max(round(n * config.rate), 1), n)
    return n_lost, min(max(round(n_lost / config.mean_length), 1), n_lost, n - n_lost + 1)


def compose(total: int, n_parts: int, rng: np.random.Generator) -> np.ndarray:
    """`total` as a sum of n_parts numbers, each at least 1; every such sum is as likely as any other."""
    cuts = np.sort(rng.choice(total - 1, n_parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
