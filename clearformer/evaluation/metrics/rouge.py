"""ROUGE: the n-grams, or the longest common subsequence, that a summary has in common with its reference.

    ROUGE-N    P = matches / n-grams of the summary,   R = matches / n-grams of the reference        Lin 2004
    ROUGE-L    P = LCS / words of the summary,         R = LCS / words of the reference
    F1         2 P R / (P + R), 0 if nothing matches

A match counts as often as the n-gram occurs in both texts. LCS is the number of words of the longest sequence that
occurs in both texts in the same order, with gaps:

    l(i, j) = l(i−1, j−1) + 1 if s_i = r_j, otherwise max(l(i−1, j), l(i, j−1))

The value of a corpus is the mean F1 of its summaries; with several references, the best counts. Words are lowercase and
consist of letters, marks and digits, as in Google's rouge_score without stemming, which knows only ASCII letters.
"""

import unicodedata
from collections.abc import Callable, Sequence

from clearformer.evaluation.metrics.bleu import count_ngrams
from clearformer.evaluation.metrics.value import check_streams

SEPARATORS = ("P", "S", "Z", "C")  # punctuation, symbols, spaces and control characters


def words_of(text: str) -> list[str]:
    """Divide a text into lowercase words, at every character that is no letter, mark or digit."""
    letters = (" " if unicodedata.category(c).startswith(SEPARATORS) else c for c in text.lower())
    return "".join(letters).split()


def f1(matches: int, n_summary: int, n_reference: int) -> float:
    """2 P R / (P + R), which is 2 matches / (n_summary + n_reference)."""
    return 2 * matches / (n_summary + n_reference) if matches else 0.0


def rouge_n(summary: Sequence[str], reference: Sequence[str], n: int) -> float:
    ours, theirs = count_ngrams(summary, n), count_ngrams(reference, n)
    return f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(summary: Sequence[str], reference: Sequence[str]) -> float:
    return f1(common_length(summary, reference), len(summary), len(reference))


def common_length(one: Sequence[str], two: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(two) + 1)
    for word in one:
        diagonal = 0
        for j, other in enumerate(two, 1):
            diagonal, row[j] = row[j], diagonal + 1 if word == other else max(row[j], row[j - 1])
    return row[-1]


ROUGE: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "rouge1": lambda summary, reference: rouge_n(summary, reference, 1),
    "rouge2": lambda summary, reference: rouge_n(summary, reference, 2),
    "rougeL": rouge_l,
}


def rouge_values(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Return rouge1, rouge2 and rougeL of every summary. `references[k][i]` is the k-th reference of hypothesis i."""
    check_streams(hypotheses, references)
    summaries = [words_of(text) for text in hypotheses]
    candidates = list(zip(*([words_of(text) for text in lines] for lines in references)))
    return {
        name: [max(compute(summary, one) for one in several) for summary, several in zip(summaries, candidates)]
        for name, compute in ROUGE.items()
    }
