"""Show byte-pair encoding step by step: the merged pair, its count, and the words after the merge.

    start        l o w ×5  l o w e r ×2  l o w e s t ×3
    1. l+o ×10   lo w ×5   lo w e r ×2   lo w e s t ×3
    2. lo+w ×10  low ×5    low e r ×2    low e s t ×3
    3. low+e ×5  low ×5    lowe r ×2     lowe s t ×3

Count all pairs of adjacent symbols, merge the most frequent pair everywhere, repeat (Sennrich et al. 2016,
algorithm 1). `tokenizers/bpe.py` does the same in Rust; the tests compare the two.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Symbols = tuple[str, ...]


@dataclass(frozen=True)
class Merge:
    """One step of byte-pair encoding: the merged pair, its count, and all words with their counts after the merge."""

    pair: tuple[str, str]
    count: int
    words: Mapping[Symbols, int]


def watch(words: Mapping[str, int] | str, n_merges: int) -> list[Merge]:
    """Return the first `n_merges` merges learned from words with counts, or from a text split at white space.

    The list is shorter if fewer merges turn every word into a single symbol. Ties between equally frequent pairs go to
    the older left symbol, then to the older right one: characters, ordered by code point, are oldest.
    """
    counts = Counter(words.split()) if isinstance(words, str) else words
    split = {tuple(word): count for word, count in counts.items()}
    rank = {symbol: age for age, symbol in enumerate(sorted({*"".join(counts)}))}
    merges: list[Merge] = []
    while len(merges) < n_merges and (pairs := count_pairs(split)):
        best = min(pairs, key=lambda pair: (-pairs[pair], rank[pair[0]], rank[pair[1]]))
        split = {merge(symbols, best): count for symbols, count in split.items()}
        rank.setdefault("".join(best), len(rank))
        merges.append(Merge(best, pairs[best], split))
    return merges


def count_pairs(words: Mapping[Symbols, int]) -> Counter[tuple[str, str]]:
    """Count each pair of adjacent symbols, weighted by the counts of the words."""
    pairs: Counter[tuple[str, str]] = Counter()
    for symbols, count in words.items():
        for pair in pairwise(symbols):
            pairs[pair] += count
    return pairs


def merge(symbols: Symbols, pair: tuple[str, str]) -> Symbols:
    """Merge each occurrence of `pair` in `symbols`, from the left: a a a becomes aa a."""
    merged: list[str] = []
    rest = iter(zip(symbols, (*symbols[1:], "")))
    for left, right in rest:
        if (left, right) == pair:
            next(rest)  # skip the right symbol, which is merged now
            left += right
        merged.append(left)
    return tuple(merged)


def segment(word: str, pairs: Sequence[tuple[str, str]]) -> Symbols:
    """Split a word as a vocabulary with these merges does: into characters, then merged in the order of `pairs`."""
    symbols = tuple(word)
    for pair in pairs:
        symbols = merge(symbols, pair)
    return symbols


def render(merges: Sequence[Merge]) -> str:
    """Format the merges as a table like the one at the top of this file: one row per merge, one column per word."""
    if not merges:
        return ""
    start = {tuple("".join(symbols)): count for symbols, count in merges[0].words.items()}
    steps = [("start", start)]
    steps += [(f"{i}. {'+'.join(m.pair)} ×{m.count}", dict(m.words)) for i, m in enumerate(merges, start=1)]
    rows = [[label, *(f"{' '.join(symbols)} ×{n}" for symbols, n in words.items())] for label, words in steps]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
