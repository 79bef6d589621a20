"""Metrics: their names, whether lower is better, and their format."""

from math import exp, inf, isfinite
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric on validation or test data."""

    name: str
    """The key in metrics.jsonl and report.json: "bleu"."""
    title: str
    """The name for people: "BLEU"."""
    lower_is_better: bool = False
    digits: int = 4
    """Digits after the decimal point when printed."""

    def better(self, value: float, best: float | None) -> bool:
        """Whether `value` is finite and strictly better than `best`. Any finite value is better than None."""
        if not isfinite(value):
            return False
        if best is None or not isfinite(best):
            return True
        return value < best if self.lower_is_better else value > best

    def format(self, value: float) -> str:
        """Return the title and the value as text, such as "BLEU 41.07"."""
        return f"{self.title} {value:.{self.digits}f}"


LOSS = Metric("loss", "Loss", lower_is_better=True)
BALANCED_LOSS = Metric("balanced_loss", "Loss, mean of classes", lower_is_better=True)
PERPLEXITY = Metric("perplexity", "Perplexity", lower_is_better=True, digits=2)
ACCURACY = Metric("accuracy", "Accuracy")
MACRO_F1 = Metric("macro_f1", "Macro F1")
BLEU = Metric("bleu", "BLEU", digits=2)
CHRF = Metric("chrf", "chrF", digits=2)
WER = Metric("wer", "Word error rate", lower_is_better=True)
CER = Metric("cer", "Character error rate", lower_is_better=True)


def perplexity(loss: float) -> float:
    """exp(loss), or infinity for a loss above 709, where the float overflows."""
    try:
        return exp(loss)
    except OverflowError:
        return inf
