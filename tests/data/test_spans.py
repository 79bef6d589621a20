from collections import Counter
from itertools import pairwise
from math import comb

import numpy as np
import pytest

from clearformer.data.spans import SpanConfig, compose, drop_spans, span_counts
from clearformer.errors import DataError

SENTINELS = list(range(999, 899, -1))  # as T5's: the first is the last of the vocabulary
PAPER = SpanConfig()


def restore(source: list[int], target: list[int], sentinels: list[int]) -> list[int]:
    """Put the spans of the target back where their sentinels stand."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in sentinels:
            span = spans.setdefault(token, [])
        else:
            span.append(token)
    return [word for token in source for word in (spans[token] if token in sentinels else [token])]


@pytest.mark.parametrize("sentinels", [SENTINELS, SENTINELS[::-1]])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 19, 64, 500])
def test_source_and_target_are_the_text(n: int, sentinels: list[int]) -> None:
    text = np.random.default_rng(n).integers(3, 800, n).tolist()
    for seed in range(20):
        source, target = drop_spans(text, sentinels, PAPER, np.random.default_rng(seed))
        n_lost, n_spans = span_counts(n, PAPER)
        assert restore(source, target, sentinels) == text
        assert (len(source), len(target)) == (n - n_lost + n_spans, n_lost + n_spans + 1)
        assert [token for token in source if token in sentinels] == sentinels[:n_spans]
        assert [token for token in target if token in sentinels] == sentinels[: n_spans + 1]
        assert target[-1] == sentinels[n_spans]
        for side in (source, target):  # two sentinels are never neighbours
            assert not any(a in sentinels and b in sentinels for a, b in pairwise(side))


def test_the_papers_numbers() -> None:
    """512 tokens: 15 % are 77 tokens, in 26 spans."""
    assert span_counts(512, PAPER) == (77, 26)
    lengths = np.array([span_counts(n, PAPER) for n in range(100, 1000)])
    assert lengths[:, 0].sum() / np.arange(100, 1000).sum() == pytest.approx(0.15, abs=1e-3)
    assert lengths[:, 0].sum() / lengths[:, 1].sum() == pytest.approx(3, abs=0.02)
    assert span_counts(20, SpanConfig(rate=0.9, mean_length=1)) == (18, 3)  # as many as can be set apart


def test_every_way_to_compose_is_equally_likely() -> None:
    """7 = a + b + c in fifteen ways."""
    rng, n = np.random.default_rng(0), 6000
    ways = Counter(tuple(compose(7, 3, rng).tolist()) for _ in range(n))
    assert len(ways) == 15
    assert all(sum(way) == 7 and min(way) > 0 for way in ways)
    assert sum((seen - n / 15) ** 2 / (n / 15) for seen in ways.values()) < 52.2  # χ², 14 free: once in 400,000


def test_span_lengths_are_those_of_a_random_composition() -> None:
    """20 lost tokens in 7 spans: a span has length l in C(19 − l, 5) of the C(19, 6) ways."""
    rng, n = np.random.default_rng(1), 3000
    lengths: Counter[int] = Counter()
    for _ in range(n):
        _, target = drop_spans(list(range(133)), SENTINELS, PAPER, rng)
        ends = [i for i, token in enumerate(target) if token in SENTINELS]
        spans = np.diff(ends) - 1
        assert (len(spans), spans.sum()) == (7, 20)
        lengths[int(spans[0])] += 1  # of one text the spans depend on each other, so only one is counted
    expected = {length: n * comb(19 - length, 5) / comb(19, 6) for length in range(1, 15)}
    rest = sum(value for length, value in expected.items() if length > 7)
    observed = [lengths[length] for length in range(1, 8)] + [n - sum(lengths[length] for length in range(1, 8))]
    pairs = zip(observed, [expected[length] for length in range(1, 8)] + [rest])
    assert sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs) < 40.5  # χ², 7 free: once in a million


def test_any_token_may_go() -> None:
    text, gone = list(range(20)), np.zeros(20, int)
    for seed in range(500):
        source, _ = drop_spans(text, SENTINELS, PAPER, np.random.default_rng(seed))
        gone[[i for i in text if i not in source]] += 1
    assert gone.sum() == 500 * 3
    assert gone.min() > 0


def test_the_generator_alone_decides() -> None:
    text = list(range(100))
    once, again, other = (drop_spans(text, SENTINELS, PAPER, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert once == again != other


def test_too_few_sentinels_and_empty_texts_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="512 tokens needs 27 sentinels, but the tokenizer has 26"):
        drop_spans(list(range(512)), SENTINELS[:26], PAPER, rng)
    with pytest.raises(DataError, match="empty text"):
        drop_spans([], SENTINELS, PAPER, rng)
