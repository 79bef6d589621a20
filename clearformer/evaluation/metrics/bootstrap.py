"""Paired bootstrap: could the difference between two systems come from the choice of test sentences? Koehn 2004.

    d    = |m(a) − m(b)|                              m is the metric of a system on the test data
    d_s  = |m(a_s) − m(b_s)|,  s = 1 … S              both systems on the same n sentences, drawn with replacement
    p    = (1 + #{s: d_s − mean(d_s) > d}) / (S + 1)

A small p, usually below 0.05, means that a difference this large is unlikely by chance. This is the test of sacrebleu,
which computes it for BLEU, chrF and TER; here it is for metrics that are a ratio of two sums over sentences, such as
the word error rate.
"""

from collections.abc import Mapping, Sequence

import numpy as np

SAMPLES = 1000
SEED = 12345  # as in sacrebleu


def paired_p_value(ours: np.ndarray, theirs: np.ndarray, n_samples: int = SAMPLES, seed: int = SEED) -> float:
    """Return p for the metric Σ x / Σ y of two systems. ours, theirs (n, 2): x and y of each sentence."""
    n = len(ours)
    rows = np.random.default_rng(seed).choice(n, size=(n_samples, n), replace=True)

    def ratio(sums: np.ndarray) -> np.ndarray:
        return sums[..., 0] / np.maximum(sums[..., 1], 1e-12)  # a sample may contain only empty references

    difference = abs(ratio(ours.sum(0)) - ratio(theirs.sum(0)))
    sampled = np.array([abs(ratio(ours[some].sum(0)) - ratio(theirs[some].sum(0))) for some in rows])
    return float((np.sum(sampled - sampled.mean() > difference) + 1) / (n_samples + 1))


def sacrebleu_p_values(
    systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], metrics: Mapping[str, object]
) -> list[dict[str, float]]:
    """Return p of every metric of sacrebleu, for each system but the first, which the others are compared with."""
    from sacrebleu.significance import PairedTest

    test = PairedTest(list(systems.items()), metrics, references, test_type="bs", n_samples=SAMPLES)  # type: ignore[arg-type]
    _, results = test()
    columns = [column for name, column in results.items() if name != "System"]
    return [
        {name: float(column[i].p_value) for name, column in zip(metrics, columns)}  # type: ignore[union-attr, arg-type]
        for i in range(1, len(systems))
    ]
