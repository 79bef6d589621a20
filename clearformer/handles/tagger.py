"""A tagger with its tokenizer and classes: a label for each word of a sentence.

p(class | word, sentence) = softmax(logits at the word's first token / T),  T = 1 unless the model is calibrated
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from clearformer.data.store import Ragged
from clearformer.data.tags import word_rows
from clearformer.errors import DataError
from clearformer.handles.batching import read_tokens
from clearformer.handles.classifier import Prediction, as_columns, by_probability
from clearformer.handles.handle import renamed
from clearformer.handles.inputs import one_or_many
from clearformer.handles.text_encoder import TextEmbedder
from clearformer.handles.text_model import TextModel
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean

Item = TypeVar("Item")
Sentence = str | Sequence[str]
"""A string, which is split at whitespace, or a list of words."""


class Tagger(TextModel, TextEmbedder):
    """A tagger, loaded from a run on labelled words. Without classes, it is a regression model."""

    kind = "a tagger"
    verbs = ("classify", "evaluate", "embed", "neighbours", "plot")
    main = "predict"
    default_top = 1
    json_key = "texts"
    is_pair = False

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        classes: Sequence[str],
        name: str = "model",
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(model, tokenizer, name, max_tokens)
        self.classes = list(classes)

    @one_or_many
    def predict(
        self,
        inputs: Sequence[str],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]:
        """Return one row per text: text and `words`.

        Each word has word, label, probability and the `top` classes; for a regression, word and value.
        """
        if pairs is not None:
            raise DataError(
                f"{self.name} labels words, not pairs of texts", "give each text alone, without a second one"
            )
        sentences = words_of(inputs)
        columns: list[list[dict[str, Any]]] = (
            [[as_columns(classes, top) for classes in row] for row in self.tag(sentences)]
            if self.classes
            else [[{"value": value} for value in row] for row in self.values(sentences)]
        )
        return [
            {"text": text, "words": [{"word": word, **column} for word, column in zip(words, row)]}
            for text, words, row in zip(inputs, sentences, columns)
        ]

    @one_or_many
    def tag(self, sentences: Sequence[Sentence]) -> list[list[list[Prediction]]]:
        """Return all classes for each word of each sentence, the most probable class first."""
        words = words_of(sentences)
        predictions = by_probability(self.logits(words), self.classes, self.temperature) if any(words) else []
        return by_sentence(predictions, words)

    @one_or_many
    def values(self, sentences: Sequence[Sentence]) -> list[list[float]]:
        """Return the value that a regression model predicts for each word of each sentence."""
        words = words_of(sentences)
        values: list[float] = self.logits(words)[:, 0].tolist() if any(words) else []
        return by_sentence(values, words)

    def logits(self, sentences: Sequence[Sentence]) -> Tensor:
        """Return the outputs of the classification head at each word of all sentences: (words, C) on the CPU."""
        words = words_of([sentences] if isinstance(sentences, str) else sentences)
        tokens, places = word_rows(list(filter(None, words)), self.tokenizer, self.max_tokens)
        segments = Ragged(np.zeros_like(tokens.flat), tokens.lengths)
        return read_tokens(self.model, tokens, segments, self.tokenizer.pad_id, self.device)[places]

    scores = renamed("scores", "logits")


def by_sentence(items: Sequence[Item], sentences: Sequence[Sequence[str]]) -> list[list[Item]]:
    """Group a flat list with one item per word into one list per sentence."""
    return [list(items[start:end]) for start, end in pairwise(accumulate(map(len, sentences), initial=0))]


def words_of(sentences: Sequence[Sentence]) -> list[list[str]]:
    """Return the words of each sentence."""
    return [clean(sentence).split() if isinstance(sentence, str) else list(sentence) for sentence in sentences]
