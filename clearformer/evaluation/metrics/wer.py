"""Word error rate: the substitutions, deletions and insertions between transcript and reference, per reference word.

    d(i, j) = min(d(i−1, j) + 1, d(i, j−1) + 1, d(i−1, j−1) + [r_i ≠ h_j])        Levenshtein 1966
    WER = Σ d(r, h) / Σ |r|                                                      over all sentences; can exceed 1

The character error rate is defined in the same way, over characters.
"""

from collections.abc import Sequence

from clearformer.errors import DataError
from clearformer.evaluation.metrics.value import check_streams


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Return the smallest number of substitutions, deletions and insertions that turn one sequence into the other."""
    row = list(range(len(hypothesis) + 1))
    for i, expected in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, actual in enumerate(hypothesis, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (expected != actual))
    return row[-1]


def error_rate(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Return the number of edits per item of the references. Items are words, or the characters of strings."""
    n = sum(map(len, references))
    if n == 0:
        raise DataError("cannot compute an error rate: all references are empty", "give references that contain words")
    return sum(map(edits, references, hypotheses)) / n


def speech_metrics(transcripts: Sequence[str], references: Sequence[str]) -> dict[str, float | int]:
    """Return the wer and cer of transcripts, and the number of words and sentences in the references."""
    check_streams(transcripts, [references])
    words = [text.split() for text in references]
    return {
        "wer": error_rate([text.split() for text in transcripts], words),
        "cer": error_rate(transcripts, references),
        "words": sum(map(len, words)),
        "sentences": len(references),
    }
