"""A text classifier with its tokenizer and the names of its classes.

p(class | text) = softmax(logits / T),  T = 1 unless the model is calibrated
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from clearformer.errors import CheckpointError, DataError
from clearformer.handles.batching import read_texts
from clearformer.handles.handle import renamed
from clearformer.handles.inputs import one_or_many
from clearformer.handles.text_encoder import TextEmbedder
from clearformer.handles.text_model import TextModel
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.wording import listed


@dataclass(frozen=True)
class Prediction:
    """A class and its probability."""

    label: str
    probability: float


Verdict = Prediction  # the old name, kept for one version


class Classifier(TextModel, TextEmbedder):
    """A text classifier, loaded from a run on labelled texts. Without classes, it is a regression model."""

    kind = "a classifier"
    verbs = ("classify", "evaluate", "embed", "neighbours", "plot")
    main = "predict"
    default_top = 1
    json_key = "texts"

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        classes: Sequence[str],
        name: str = "model",
        max_tokens: int | None = None,
        is_pair: bool | None = False,
    ) -> None:
        """`is_pair` says whether it classifies pairs of texts; None if the files of the model do not tell."""
        super().__init__(model, tokenizer, name, max_tokens)
        self.classes, self.is_pair = list(classes), is_pair

    @one_or_many
    def predict(
        self,
        inputs: Sequence[str],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]:
        """Return one row per text: text, pair (if any), label, probability and the `top` classes.

        The rows of a regression model have `value` instead of classes.
        """
        rows: list[dict[str, Any]] = [{"text": text} for text in inputs]
        for row, pair in zip(rows, pairs or []):
            row["pair"] = pair
        if not self.classes:
            return [row | {"value": value} for row, value in zip(rows, self.values(inputs, pairs))]
        return [row | as_columns(classes, top) for row, classes in zip(rows, self.classify(inputs, pairs))]

    @one_or_many
    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[Prediction]]:
        """Return all classes for each text, or each text and its pair, with the most probable class first."""
        if not self.classes:
            raise CheckpointError(
                f"{self.name} predicts values, not classes: it was trained with data.regression = true",
                "call `values` or `predict` instead",
            )
        return by_probability(self.logits(texts, pairs), self.classes, self.temperature) if texts else []

    @one_or_many
    def values(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """Return the value that a regression model predicts for each text."""
        if self.classes:
            raise CheckpointError(
                f"{self.name} predicts classes ({listed(self.classes, most=5)}), not values",
                "call `classify` or `predict` instead",
            )
        values: list[float] = self.logits(texts, pairs)[:, 0].tolist() if texts else []
        return values

    @one_or_many
    def logits(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Tensor:
        """Return the outputs of the classification head: (N, C) on the CPU, or (C,) for a single text."""
        if self.is_pair is not None and self.is_pair != (pairs is not None):
            accepted, hint = (
                ("pairs of texts", "give a second text for each text; in files, separate them by a tab")
                if self.is_pair
                else ("single texts", "give each text alone, without a second one")
            )
            raise DataError(f"{self.name} was trained on {accepted} and classifies nothing else", hint)
        # Texts from files are normalised in the same way.
        texts, pairs = list(map(clean, texts)), None if pairs is None else list(map(clean, pairs))
        logits = read_texts(self.model, self.tokenizer, texts, pairs, self.max_tokens, self.device)
        self.require_numbers([float(logits.sum())])
        return logits

    scores = renamed("scores", "logits")


def by_probability(logits: Tensor, classes: Sequence[str], temperature: float = 1.0) -> list[list[Prediction]]:
    """Return all classes of each example, the most probable first, from logits (N, C).

    The order does not depend on the temperature, not even where probabilities are rounded to the same value.
    """
    probabilities, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
    if temperature != 1:
        probabilities = (logits / temperature).softmax(-1).gather(-1, order)
    rows = zip(order.tolist(), probabilities.tolist())
    return [[Prediction(classes[k], p) for k, p in zip(*row)] for row in rows]


def as_columns(predictions: Sequence[Prediction], top: int) -> dict[str, Any]:
    """Return the columns of a result: label and probability of the most probable class, and the `top` classes."""
    return asdict(predictions[0]) | {"top": [asdict(prediction) for prediction in predictions[:top]]}


def divide(lines: Sequence[str], is_pair: bool | None) -> tuple[list[str], list[str] | None]:
    """Split each line at its tab if the classifier takes pairs of texts; otherwise, each line is one text."""
    if not is_pair:
        return list(lines), None
    for line in lines:
        if line.count("\t") != 1:
            raise DataError(
                f"{line[:40]!r} is not a pair of texts",
                "separate the two texts of a pair by one tab; in a data table, give two columns: --column A,B",
            )
    halves = [line.split("\t") for line in lines]
    return [first for first, _ in halves], [second for _, second in halves]
