"""BLEU: the share of a translation's n-grams that a reference has too, and a penalty for saying too little.

    BLEU = 100 · BP · exp(Σ_n w_n ln p_n)                                            Papineni et al. 2002

    p_n  = Σ_segments Σ_g min(count of g in hypothesis, max over references of count of g in that reference)
           ──────────────────────────────────────────────────────────────────────────────────────────────────
           Σ_segments number of n-grams in hypothesis
    BP   = 1 if c > r, else exp(1 - r / c)

with c the hypotheses' total length and r the total of the reference lengths closest to them. Both sums run over the
corpus before the division: BLEU of a corpus is not the mean of its sentences' BLEU.

A common slip in lecture notes is to count a repeated word once. The clip is to the most often it occurs in any ONE
reference: "the cat the mat" has p_1 = 4/4 against "the mat the cat", while counts in two references never add up.

`bleu_from_tokens` is the recipe above, for reading and checking; `corpus_bleu` is sacrebleu, for numbers to publish.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, fsum, log
from typing import NamedTuple

from sacrebleu.metrics import BLEU

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.evaluation.metrics.score import Score, check_streams

Smoothing = Callable[[Sequence[int], Sequence[int]], list[float]]  # matches and totals by order -> precisions


class Bleu(NamedTuple):
    """BLEU and what it is made of: `score` runs from 0 to 100, each of `precisions` from 0 to 1."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int


def unsmoothed(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """p_n = matches / totals, as published. One order without a match makes the whole score zero."""
    return [match / total if total else 0.0 for match, total in zip(matches, totals)]


def exponential(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """The k-th order without a match counts as 1 / 2^k of one: NIST's mteval, "method 3" of Chen and Cherry 2014.

    A text with no match at all keeps its zeros, and so does an order that is longer than every hypothesis.
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

    `weights` are w_1 to w_N and should sum to one. Of two references equally close in length, the shorter counts.
    """
    if len(hypotheses) != len(references) or not all(references):
        raise DataError(
            f"{len(hypotheses)} hypotheses but references for {sum(map(bool, references))}",
            "give every hypothesis at least one reference",
        )
    orders = range(1, len(weights) + 1)
    matches, totals = [0] * len(weights), [0] * len(weights)
    c = r = 0
    for hypothesis, candidates in zip(hypotheses, references):
        c += len(hypothesis)
        r += min(map(len, candidates), key=lambda length: (abs(length - len(hypothesis)), length))
        for n in orders:
            said, allowed = count_ngrams(hypothesis, n), Counter[tuple[str, ...]]()
            for reference in candidates:
                allowed |= count_ngrams(reference, n)  # union of multisets: the larger count
            matches[n - 1] += (said & allowed).total()  # intersection: the smaller, which is the clip
            totals[n - 1] += said.total()

    precisions = smooth(matches, totals)
    penalty = 1.0 if c >= r else exp(1 - r / c) if c else 0.0
    weighted = [(w, p) for w, p in zip(weights, precisions) if w]
    mean = exp(fsum(w * log(p) for w, p in weighted)) if all(p for _, p in weighted) else 0.0
    return Bleu(100 * penalty * mean, tuple(precisions), penalty, c, r)


def count_ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """Every run of n tokens and how often it occurs; empty when there are fewer than n."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


# sacrebleu's tokenizers that need neither a download nor another package.
TOKENIZERS = ("13a", "char", "intl", "none", "zh")


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: str = "13a", lowercase: bool = False
) -> Score:
    """BLEU of detokenised text as sacrebleu computes it, with the signature that makes the number comparable.

    `references` is a list of streams: `references[k][i]` is the k-th reference of `hypotheses[i]`. Take "intl" for
    scripts whose punctuation is not ASCII (13a leaves the Devanagari danda glued to its word), "zh" for Chinese.
    """
    check_streams(hypotheses, references)
    if tokenize not in TOKENIZERS:
        raise ConfigError(f"BLEU has no tokenizer called `{tokenize}`", suggest(tokenize, TOKENIZERS))
    # `force` only silences the advice to detokenise, which is moot when tokenised text is what is asked for.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    result = metric.corpus_score(hypotheses, references)
    return Score("BLEU", result.score, str(metric.get_signature()))
