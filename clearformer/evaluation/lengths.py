"""BLEU against the length of the sentence: Bahdanau et al. 2015, figure 2.

A translator that squeezes a sentence into one vector falls off as sentences grow longer; with attention it does not.
"""

from collections.abc import Sequence
from itertools import groupby
from statistics import mean
from typing import Any

from clearformer.evaluation.evaluate import EvaluateConfig, score


def bleu_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    config: EvaluateConfig,
    n_groups: int = 8,
) -> list[dict[str, Any]]:
    """At most n groups of sentences, ever longer, none of them small: words (their mean), sentences, bleu."""
    lengths = [len(source.split()) for source in sources]
    groups: list[list[int]] = [[]]
    for _, same in groupby(sorted(range(len(lengths)), key=lengths.__getitem__), key=lengths.__getitem__):
        if len(groups[-1]) * n_groups >= len(lengths):
            groups.append([])
        groups[-1].extend(same)
    if len(groups) > 1 and len(groups[-1]) * n_groups < len(lengths):
        rest = groups.pop()
        groups[-1].extend(rest)
    return [
        {
            "words": mean(lengths[i] for i in rows),
            "sentences": len(rows),
            "bleu": score([translations[i] for i in rows], [[one[i] for i in rows] for one in references], config)[
                "bleu"
            ],
        }
        for rows in groups
    ]
