"""Evaluation of output files without a model: metrics of one system, or of several with paired bootstrap tests.

    bleu, chrf, ter    translations; computed by sacrebleu, with signatures. TER is the number of edits per reference
                       word, where a sequence of words that moves is one edit (Snover et al. 2006)
    wer                transcripts: edits per reference word
    rouge              summaries: rouge1, rouge2 and rougeL

Several systems are compared with the first: p_values are from metrics/bootstrap.py, and 1 for equal values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.evaluation.metrics.bleu import sacrebleu_metric
from clearformer.evaluation.metrics.bootstrap import SAMPLES, paired_p_value, sacrebleu_p_values
from clearformer.evaluation.metrics.rouge import rouge_values
from clearformer.evaluation.metrics.value import check_streams
from clearformer.evaluation.metrics.wer import edits

METRICS = ("bleu", "chrf", "ter", "wer", "rouge")
DEFAULT = ("bleu", "chrf", "ter", "wer")
SACREBLEU = ("bleu", "chrf", "ter")


def evaluate_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = DEFAULT,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, Any]:
    """Return the metrics of the hypotheses of each system, signatures, and sentences (their number).

    `references[k][i]` is the k-th reference of every i-th hypothesis. The metrics of a single system are entries of the
    result. Of several systems, `systems` lists the metrics, and p_values for all but the first. BLEU is computed
    with `tokenize` and `lowercase`.
    """
    for name in metrics:
        if name not in METRICS:
            raise ConfigError(f"there is no metric `{name}` for files", suggest(name, METRICS))
    for hypotheses in systems.values():
        check_streams(hypotheses, references)
    scorers = sacrebleu_metrics([name for name in SACREBLEU if name in metrics], tokenize, lowercase)
    rows: list[dict[str, Any]] = []
    sums = [sentence_sums(hypotheses, references, metrics) for hypotheses in systems.values()]
    for hypotheses, sentences in zip(systems.values(), sums):
        values = {name: scorer.corpus_score(hypotheses, references).score for name, scorer in scorers.items()}
        rows.append(values | {name: float(xy[:, 0].sum() / xy[:, 1].sum()) for name, xy in sentences.items()})
    shared = {
        "signatures": {name: str(scorer.get_signature()) for name, scorer in scorers.items()},
        "sentences": len(references[0]),
    }
    if len(systems) == 1:
        return {**rows[0], **shared}
    tests = sacrebleu_p_values(systems, references, scorers) if scorers else [{} for _ in rows[1:]]
    for row, test, sentences in zip(rows[1:], tests, sums[1:]):
        p_values = test | {name: paired_p_value(xy, sums[0][name]) for name, xy in sentences.items()}
        row["p_values"] = {name: 1.0 if row[name] == rows[0][name] else p for name, p in p_values.items()}
    return {"systems": [{"hypotheses": name, **row} for name, row in zip(systems, rows)], "samples": SAMPLES, **shared}


def sacrebleu_metrics(names: Sequence[str], tokenize: str, lowercase: bool) -> dict[str, Any]:
    """Return metrics of sacrebleu by our names, with the settings of `corpus_bleu` and `corpus_chrf`."""
    from sacrebleu.metrics import CHRF, TER

    metrics = {"bleu": sacrebleu_metric(tokenize, lowercase), "chrf": CHRF(), "ter": TER()}
    return {name: metrics[name] for name in names}


def sentence_sums(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], metrics: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return (x, y) of each sentence, (n, 2), for the metrics that are Σ x / Σ y.

    Of several references, the word error rate uses the one with the fewest edits, the longest of equals.
    """
    sums: dict[str, np.ndarray] = {}
    if "wer" in metrics:
        counts = [closest(line.split(), texts) for line, texts in zip(hypotheses, zip(*references))]
        sums["wer"] = np.array(counts, "float64")
        if not sums["wer"][:, 1].any():
            raise DataError(
                "cannot compute the word error rate: all references are empty", "give references that contain words"
            )
    if "rouge" in metrics:
        for name, values in rouge_values(hypotheses, references).items():
            sums[name] = np.stack([values, np.ones(len(values))], axis=1)
    return sums


def closest(hypothesis: Sequence[str], references: Sequence[str]) -> tuple[int, int]:
    """Return the number of edits to the closest reference, and the number of its words."""
    candidates = [text.split() for text in references]
    n_edits, negative = min((edits(words, hypothesis), -len(words)) for words in candidates)
    return n_edits, -negative
