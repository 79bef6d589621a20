"""chrF: an F-score over the character n-grams that occur in both a translation and its reference.

    chrF = (1 + β²) · P · R / (β² · P + R), β = 2                          Popović 2015

P and R are the n-gram precision and recall averaged over n = 1 … 6, without spaces. Recall counts more than
precision (β = 2). A wrong ending costs a few characters instead of a whole word, so chrF suits languages with rich
morphology, such as Hindi, German or Czech, better than BLEU.
"""

from collections.abc import Sequence

from clearformer.evaluation.metrics.value import MetricValue, check_streams


def corpus_chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], word_order: int = 0, lowercase: bool = False
) -> MetricValue:
    """chrF of detokenised text as sacrebleu computes it, from 0 to 100, with its signature.

    `references[k][i]` is the k-th reference of `hypotheses[i]`; the best of them counts. `word_order=2` adds word
    unigrams and bigrams to the averages, which is chrF++. Counts are summed over the corpus before the division.
    """
    from sacrebleu.metrics import CHRF

    check_streams(hypotheses, references)
    metric = CHRF(word_order=word_order, lowercase=lowercase)
    result = metric.corpus_score(hypotheses, references)
    return MetricValue(result.name, result.score, str(metric.get_signature()))
