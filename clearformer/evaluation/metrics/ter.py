"""TER: the edits that turn a translation into its reference, per reference word. Lower is better.

    TER = 100 · Σ_segments min over references of edits / Σ_segments mean reference length      Snover et al. 2006

An edit inserts, deletes or substitutes a word, or shifts a sequence of words to another place. Without shifts, TER
would be the word error rate.
"""

from collections.abc import Sequence

from clearformer.evaluation.metrics.value import MetricValue, check_streams


def corpus_ter(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> MetricValue:
    """TER of detokenised text as sacrebleu computes it, ignoring case, with its signature.

    `references[k][i]` is the k-th reference of `hypotheses[i]`.
    """
    from sacrebleu.metrics import TER

    check_streams(hypotheses, references)
    metric = TER()
    result = metric.corpus_score(hypotheses, references)
    return MetricValue("TER", result.score, str(metric.get_signature()))
