"""Sentences in, a label for each of their words out.

p(class | word, sentence) = softmax(scores at the word's first piece)
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
from torch import Tensor, nn

from clearformer.data.store import Ragged
from clearformer.data.tags import lay_words
from clearformer.handles.batching import read_tokens
from clearformer.handles.classifier import Verdict, ranked
from clearformer.handles.text_model import Reader
from clearformer.text import Tokenizer

Found = TypeVar("Found")


class Tagger(Reader):
    """`load` makes one from the run folder of a training on labelled words. Without classes it is a regression."""

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

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[list[Verdict]]]:
        """Every class for each word of each sentence, the likeliest first."""
        found = ranked(self.scores(sentences), self.classes) if any(sentences) else []
        return by_sentence(found, sentences)

    def values(self, sentences: Sequence[Sequence[str]]) -> list[list[float]]:
        """What a regression says of each word of each sentence."""
        found: list[float] = self.scores(sentences)[:, 0].tolist() if any(sentences) else []
        return by_sentence(found, sentences)

    def scores(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """What the head says of each word, one sentence after another: (words, C) on the CPU."""
        tokens, places = lay_words([words for words in sentences if words], self.tokenizer, self.max_tokens)
        segments = Ragged(np.zeros_like(tokens.flat), tokens.lengths)
        return read_tokens(self.model, tokens, segments, self.tokenizer.pad_id, self.device)[places]


def by_sentence(found: Sequence[Found], sentences: Sequence[Sequence[str]]) -> list[list[Found]]:
    """What was found of each word, one sentence after another, sentence by sentence."""
    return [list(found[start:end]) for start, end in pairwise(accumulate(map(len, sentences), initial=0))]
