"""Byte-pair encoding told slowly: which pair is merged, how often it occurred, and what the words become.

    start        l o w ×5  l o w e r ×2  l o w e s t ×3
    1. l+o ×10   lo w ×5   lo w e r ×2   lo w e s t ×3
    2. lo+w ×10  low ×5    low e r ×2    low e s t ×3
    3. low+e ×5  low ×5    lowe r ×2     lowe s t ×3

Count every pair of neighbours, merge the most frequent one everywhere, repeat (Sennrich et al. 2016, algorithm 1).
`tokenizers/bpe.py` has Rust do the same, and the tests hold the two together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Symbols = tuple[str, ...]


@dataclass(frozen=True)
class Merge:
    """One step: the pair, how often it occurred, and every word (with its count) once it is merged."""

    pair: tuple[str, str]
    count: int
    words: Mapping[Symbols, int]


def watch(words: Mapping[str, int] | str, n_merges: int) -> list[Merge]:
    """The first `n_merges` merges learned from words with their counts, or from a text split at white space.

    Fewer come back if every word becomes one symbol before. Among equally frequent pairs the one with the older left
    symbol wins, then the older right one, where characters are born in code-point order and merges as they happen.
    """
    counts = Counter(words.split()) if isinstance(words, str) else words
    split = {tuple(word): count for word, count in counts.items()}
    birth = {symbol: age for age, symbol in enumerate(sorted({*"".join(counts)}))}
    merges: list[Merge] = []
    while len(merges) < n_merges and (pairs := count_pairs(split)):
        best = min(pairs, key=lambda pair: (-pairs[pair], birth[pair[0]], birth[pair[1]]))
        split = {merge(symbols, best): count for symbols, count in split.items()}
        birth.setdefault("".join(best), len(birth))
        merges.append(Merge(best, pairs[best], split))
    return merges


def count_pairs(words: Mapping[Symbols, int]) -> Counter[tuple[str, str]]:
    """How often each pair of symbols stands side by side, a word counting as often as it occurs."""
    pairs: Counter[tuple[str, str]] = Counter()
    for symbols, count in words.items():
        for pair in pairwise(symbols):
            pairs[pair] += count
    return pairs


def merge(symbols: Symbols, pair: tuple[str, str]) -> Symbols:
    """`symbols` with each occurrence of `pair` made one, from the left: a a a becomes aa a."""
    merged: list[str] = []
    rest = iter(zip(symbols, (*symbols[1:], "")))
    for left, right in rest:
        if (left, right) == pair:
            next(rest)  # the right half is used up
            left += right
        merged.append(left)
    return tuple(merged)


def render(merges: Sequence[Merge]) -> str:
    """The table at the head of this file: one row per merge, one column per word."""
    if not merges:
        return ""
    start = {tuple("".join(symbols)): count for symbols, count in merges[0].words.items()}
    steps = [("start", start)]
    steps += [(f"{i}. {'+'.join(m.pair)} ×{m.count}", dict(m.words)) for i, m in enumerate(merges, start=1)]
    rows = [[label, *(f"{' '.join(symbols)} ×{n}" for symbols, n in words.items())] for label, words in steps]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
