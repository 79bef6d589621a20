"""A tagger with its tokenizer and classes: a label for each word of a sentence.

p(class | word, sentence) = softmax(scores at the word's first piece)
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from clearformer.data.store import Ragged
from clearformer.data.tags import lay_words
from clearformer.errors import DataError
from clearformer.handles.batching import read_tokens, refuse_string
from clearformer.handles.classifier import Verdict, as_columns, by_probability
from clearformer.handles.text_model import TextModel
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean

Item = TypeVar("Item")


class Tagger(TextModel):
    """`load` makes one from the run folder of a training on labelled words. Without classes it is a regression."""

    kind = "a tagger"
    verbs = ("classify", "evaluate", "embed", "plot")
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

    def predict(
        self,
        inputs: Sequence[str],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]:
        """A row for each text: text, and as `words` a row for each word: word, label, probability, `top`; or value."""
        refuse_string(inputs)
        if pairs is not None:
            raise DataError(f"{self.name} judges words, not pairs of texts", "give the texts alone")
        sentences = [clean(text).split() for text in inputs]
        columns: list[list[dict[str, Any]]] = (
            [[as_columns(verdicts, top) for verdicts in row] for row in self.tag(sentences)]
            if self.classes
            else [[{"value": value} for value in row] for row in self.values(sentences)]
        )
        return [
            {"text": text, "words": [{"word": word, **column} for word, column in zip(words, row)]}
            for text, words, row in zip(inputs, sentences, columns)
        ]

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[list[Verdict]]]:
        """Every class for each word of each sentence, the likeliest first."""
        refuse_undivided(sentences)
        verdicts = by_probability(self.scores(sentences), self.classes) if any(sentences) else []
        return by_sentence(verdicts, sentences)

    def values(self, sentences: Sequence[Sequence[str]]) -> list[list[float]]:
        """The value that a regression gives each word of each sentence."""
        refuse_undivided(sentences)
        values: list[float] = self.scores(sentences)[:, 0].tolist() if any(sentences) else []
        return by_sentence(values, sentences)

    def scores(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The head's outputs at each word, one sentence after another: (words, C) on the CPU."""
        refuse_undivided(sentences)
        tokens, places = lay_words([words for words in sentences if words], self.tokenizer, self.max_tokens)
        segments = Ragged(np.zeros_like(tokens.flat), tokens.lengths)
        return read_tokens(self.model, tokens, segments, self.tokenizer.pad_id, self.device)[places]


def by_sentence(items: Sequence[Item], sentences: Sequence[Sequence[str]]) -> list[list[Item]]:
    """One item for each word, in order -> the items of each sentence."""
    return [list(items[start:end]) for start, end in pairwise(accumulate(map(len, sentences), initial=0))]


def refuse_undivided(sentences: Sequence[Sequence[str]]) -> None:
    refuse_string(sentences, "sentence")
    for words in sentences:
        if isinstance(words, str):
            raise DataError(f"expected a list of words, not the text {words[:40]!r}", "divide it: text.split()")
