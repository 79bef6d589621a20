"""Word error rate: how many words must be changed, dropped or put in to make what was heard into what was said.

    d(i, j) = min(d(i−1, j) + 1, d(i, j−1) + 1, d(i−1, j−1) + [r_i ≠ h_j])        Levenshtein 1966
    WER = Σ d(r, h) / Σ |r|                                                      over all sentences; it may pass 1

The same of letters is the character error rate.
"""

from collections.abc import Sequence

from clearformer.errors import DataError
from clearformer.evaluation.metrics.score import check_streams


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """The fewest changes that make one into the other."""
    row = list(range(len(hypothesis) + 1))
    for i, said in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, heard in enumerate(hypothesis, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (said != heard))
    return row[-1]


def error_rate(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Of sequences of words, or of letters: strings."""
    n = sum(map(len, references))
    if n == 0:
        raise DataError("nothing to score: nothing is said in any reference", "give transcripts that have words")
    return sum(map(edits, references, hypotheses)) / n


def score_speech(heard: Sequence[str], said: Sequence[str]) -> dict[str, float | int]:
    """Texts, line by line: wer, cer, and how many words and sentences were said."""
    check_streams(heard, [said])
    spoken = [text.split() for text in said]
    return {
        "wer": error_rate([text.split() for text in heard], spoken),
        "cer": error_rate(heard, said),
        "words": sum(map(len, spoken)),
        "sentences": len(said),
    }
