"""BLEU: the fraction of a translation's n-grams that also occur in a reference, with a penalty for short output.

    BLEU = 100 · BP · exp(Σ_n w_n ln p_n)                                            Papineni et al. 2002

    p_n  = Σ_segments Σ_g min(count of g in hypothesis, max over references of count of g in that reference)
           ──────────────────────────────────────────────────────────────────────────────────────────────────
           Σ_segments number of n-grams in hypothesis
    BP   = 1 if c > r, otherwise exp(1 - r / c)

c is the total length of the hypotheses, r the total length of the references closest to them in length. Sums run over
the whole corpus before the division: the BLEU of a corpus is not the mean of the BLEU of its sentences.

Lecture notes sometimes count a repeated word only once. In fact its count is clipped to the largest count in any ONE
reference: "the cat the mat" has p_1 = 4/4 against "the mat the cat", and counts in two references are never added.

`bleu_from_tokens` implements the equations above, for reading and checking; `corpus_bleu` calls sacrebleu, for values
that can be published.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, fsum, log
from typing import Any, NamedTuple

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.evaluation.metrics.value import MetricValue, check_streams
from clearformer.wording import count

Smoothing = Callable[[Sequence[int], Sequence[int]], list[float]]  # matches and totals by order -> precisions


class Bleu(NamedTuple):
    """BLEU and its components: `score` ranges from 0 to 100, each of `precisions` from 0 to 1."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int


def unsmoothed(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """p_n = matches / totals, as published. A single order without a match makes BLEU zero."""
    return [match / total if total else 0.0 for match, total in zip(matches, totals)]


def exponential(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """Count the k-th order without a match as 1 / 2^k of a match, like NIST's mteval.

    This is "method 3" of Chen and Cherry 2014.

    Precisions stay zero if no order has a match, and for orders longer than every hypothesis.
    """
    precisions, credit = unsmoothed(matches, totals), 1.0
    for order, (match, total) in enumerate(zip(matches, totals)):
        if any(matches) and total and not match:
            credit /= 2
            precisions[order] = credit / total
    return precisions


def bleu_from_tokens(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    weights: Sequence[float] = (0.25,) * 4,
    smooth: Smoothing = exponential,
) -> Bleu:
    """Corpus BLEU of tokenised hypotheses; `references[i]` lists the references of `hypotheses[i]`.

    `weights` are w_1 to w_N and should sum to 1. If two references are equally close in length, the shorter counts.
    """
    if len(hypotheses) != len(references) or not all(references):
        raise DataError(
            f"{count(len(hypotheses), 'hypothesis', 'hypotheses')} but references for {sum(map(bool, references)):,}",
            "give every hypothesis at least one reference",
        )
    orders = range(1, len(weights) + 1)
    matches, totals = [0] * len(weights), [0] * len(weights)
    c = r = 0
    for hypothesis, candidates in zip(hypotheses, references):
        c += len(hypothesis)
        r += min(map(len, candidates), key=lambda length: (abs(length - len(hypothesis)), length))
        for n in orders:
            ngrams, allowed = count_ngrams(hypothesis, n), Counter[tuple[str, ...]]()
            for reference in candidates:
                allowed |= count_ngrams(reference, n)  # union of multisets: the larger count
            matches[n - 1] += (ngrams & allowed).total()  # intersection: the smaller count, which is the clip
            totals[n - 1] += ngrams.total()

    precisions = smooth(matches, totals)
    penalty = 1.0 if c >= r else exp(1 - r / c) if c else 0.0
    weighted = [(w, p) for w, p in zip(weights, precisions) if w]
    mean = exp(fsum(w * log(p) for w, p in weighted)) if all(p for _, p in weighted) else 0.0
    return Bleu(100 * penalty * mean, tuple(precisions), penalty, c, r)


def count_ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """Count how often each n-gram occurs. The result is empty if there are fewer than n tokens."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


# sacrebleu's tokenizers that need neither a download nor another package.
TOKENIZERS = ("13a", "char", "intl", "none", "zh")


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: str = "13a", lowercase: bool = False
) -> MetricValue:
    """BLEU of detokenised text as sacrebleu computes it, with the signature that makes the value comparable.

    `references[k][i]` is the k-th reference of `hypotheses[i]`. Use "intl" for scripts whose punctuation is not ASCII
    (13a leaves the Devanagari danda attached to its word), and "zh" for Chinese.
    """
    check_streams(hypotheses, references)
    metric = sacrebleu_metric(tokenize, lowercase)
    try:
        result = metric.corpus_score(hypotheses, references)
    finally:
        forget_sentences(metric.tokenizer)
    return MetricValue("BLEU", result.score, str(metric.get_signature()))


def forget_sentences(tokenizer: Any) -> None:
    """Empty sacrebleu's caches of tokenised sentences.

    They belong to the classes of its tokenizers, hold 65,536 sentences each, and keep every tokenizer alive: a process
    that evaluates again and again, such as a training that validates, would grow by 0.1 MB per 40 sentences.
    """
    for part in (tokenizer, *vars(tokenizer).values()):  # 13a and zh call a second tokenizer
        for method in vars(type(part)).values():
            if hasattr(method, "cache_clear"):
                method.cache_clear()


def sacrebleu_metric(tokenize: str, lowercase: bool) -> Any:
    """Return BLEU as an object of sacrebleu."""
    from sacrebleu.metrics import BLEU

    if tokenize not in TOKENIZERS:
        raise ConfigError(f"BLEU has no tokenizer `{tokenize}`", suggest(tokenize, TOKENIZERS))
    # `force` only silences the advice to detokenise, which is pointless with "none": the text is tokenised on purpose.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
