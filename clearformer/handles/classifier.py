"""Text in, a label out: a classifier with its tokenizer and the names of its classes.

p(class | text) = softmax(scores)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from clearformer.errors import CheckpointError, DataError
from clearformer.handles.batching import read_texts
from clearformer.handles.text_model import Reader
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean


@dataclass(frozen=True)
class Verdict:
    """A class and how likely the model finds it."""

    label: str
    probability: float


class Classifier(Reader):
    """`load` makes one from a run folder. Without classes it is a regression, which has values instead of verdicts."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        classes: Sequence[str],
        name: str = "model",
        max_tokens: int | None = None,
        is_pair: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, name, max_tokens)
        self.classes, self.is_pair = list(classes), is_pair

    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[Verdict]]:
        """Every class for each text, or for each text with its pair, the likeliest first."""
        if not self.classes:
            raise CheckpointError(
                f"{self.name} gives values, not classes", "it was trained with data.regression = true"
            )
        if not texts:
            return []
        return ranked(self.scores(texts, pairs), self.classes)

    def values(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """What a regression says of each text."""
        if self.classes:
            raise CheckpointError(f"{self.name} gives classes, not values", f"they are: {', '.join(self.classes)}")
        told: list[float] = self.scores(texts, pairs)[:, 0].tolist() if texts else []
        return told

    def scores(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Tensor:
        """What the head says, before any softmax: (N, C) on the CPU."""
        if self.is_pair != (pairs is not None):
            judged = "pairs of texts" if self.is_pair else "single texts"
            raise DataError(f"{self.name} judges {judged}", "it was trained on such; a tab divides the texts of a pair")
        texts, pairs = list(map(clean, texts)), None if pairs is None else list(map(clean, pairs))  # as files are read
        return read_texts(self.model, self.tokenizer, texts, pairs, self.max_tokens, self.device)


def ranked(scores: Tensor, classes: Sequence[str]) -> list[list[Verdict]]:
    """scores (N, C): every class for each of N, the likeliest first."""
    told, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
    return [[Verdict(classes[k], p) for k, p in zip(ks, ps)] for ks, ps in zip(order.tolist(), told.tolist())]


def divide(lines: Sequence[str], is_pair: bool) -> tuple[list[str], list[str] | None]:
    """Lines as texts; or, where pairs are judged, what stands before and after the tab of each."""
    if not is_pair:
        return list(lines), None
    for line in lines:
        if line.count("\t") != 1:
            raise DataError(f"{line[:40]!r} is not a pair of texts", "a tab divides the two texts of a pair")
    halves = [line.split("\t") for line in lines]
    return [first for first, _ in halves], [second for _, second in halves]
