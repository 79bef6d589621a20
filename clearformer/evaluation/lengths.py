"""BLEU by sentence length, as in figure 2 of Bahdanau et al. 2015.

A translator that encodes a sentence as one vector gets worse as sentences grow longer; one with attention does not.
"""

from collections.abc import Sequence
from itertools import groupby
from statistics import mean
from typing import Any

from clearformer.evaluation.evaluate import EvaluateConfig, translation_metrics


def bleu_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    config: EvaluateConfig,
    n_groups: int = 8,
) -> list[dict[str, Any]]:
    """Divide sentences by length into at most `n_groups` groups, and compute the BLEU of each.

    Returns words (mean source length), sentences and bleu for each group. No group is small.
    """
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
            "bleu": translation_metrics(
                [translations[i] for i in rows], [[lines[i] for i in rows] for lines in references], config
            )["bleu"],
        }
        for rows in groups
    ]
