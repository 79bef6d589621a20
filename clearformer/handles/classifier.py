"""A text classifier with its tokenizer and the names of its classes.

p(class | text) = softmax(scores)
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from clearformer.errors import CheckpointError, DataError
from clearformer.handles.batching import read_texts, refuse_string
from clearformer.handles.text_model import TextModel
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean


@dataclass(frozen=True)
class Verdict:
    """A class and its probability."""

    label: str
    probability: float


class Classifier(TextModel):
    """`load` makes one from a run folder. Without classes it is a regression: it gives values instead of labels."""

    kind = "a classifier"
    verbs = ("classify", "evaluate", "embed", "plot")
    default_top = 1
    json_key = "texts"

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

    def predict(
        self,
        inputs: Sequence[str],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]:
        """A row for each text: text, pair if there is one, label, probability, and the `top` classes; or a value."""
        refuse_string(inputs)
        rows: list[dict[str, Any]] = [{"text": text} for text in inputs]
        for row, pair in zip(rows, pairs or []):
            row["pair"] = pair
        if not self.classes:
            return [row | {"value": value} for row, value in zip(rows, self.values(inputs, pairs))]
        return [row | as_columns(verdicts, top) for row, verdicts in zip(rows, self.classify(inputs, pairs))]

    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[Verdict]]:
        """Every class for each text, or for each text with its pair, the likeliest first."""
        refuse_string(texts)
        if not self.classes:
            raise CheckpointError(
                f"{self.name} gives values, not classes", "it was trained with data.regression = true"
            )
        return by_probability(self.scores(texts, pairs), self.classes) if texts else []

    def values(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """The value that a regression gives each text."""
        refuse_string(texts)
        if self.classes:
            raise CheckpointError(f"{self.name} gives classes, not values", f"they are: {', '.join(self.classes)}")
        values: list[float] = self.scores(texts, pairs)[:, 0].tolist() if texts else []
        return values

    def scores(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Tensor:
        """The head's outputs before any softmax: (N, C) on the CPU."""
        refuse_string(texts)
        if pairs is not None:
            refuse_string(pairs)
        if self.is_pair != (pairs is not None):
            judged = "pairs of texts" if self.is_pair else "single texts"
            raise DataError(f"{self.name} judges {judged}", "it was trained on them; a tab divides the texts of a pair")
        texts, pairs = list(map(clean, texts)), None if pairs is None else list(map(clean, pairs))  # as files are read
        return read_texts(self.model, self.tokenizer, texts, pairs, self.max_tokens, self.device)


def by_probability(scores: Tensor, classes: Sequence[str]) -> list[list[Verdict]]:
    """scores (N, C): every class for each of N, the likeliest first."""
    probabilities, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
    rows = zip(order.tolist(), probabilities.tolist())
    return [[Verdict(classes[k], p) for k, p in zip(*row)] for row in rows]


def as_columns(verdicts: Sequence[Verdict], top: int) -> dict[str, Any]:
    """The likeliest class as label and probability, and the first `top`."""
    return asdict(verdicts[0]) | {"top": [asdict(verdict) for verdict in verdicts[:top]]}


def divide(lines: Sequence[str], is_pair: bool) -> tuple[list[str], list[str] | None]:
    """Lines as texts; or, for a classifier of pairs, as the texts before and after the tab of each line."""
    if not is_pair:
        return list(lines), None
    for line in lines:
        if line.count("\t") != 1:
            raise DataError(f"{line[:40]!r} is not a pair of texts", "a tab divides the two texts of a pair")
    halves = [line.split("\t") for line in lines]
    return [first for first, _ in halves], [second for _, second in halves]
