"""Sentences as they were written, or with one word wrong, to be told apart.

    the man pulled a cart        as it was        half of the time
    the man market a cart        a word replaced by one drawn from the text, hence by its frequency
    the man a cart               a word left out

Some changes leave a sentence as good as it was ("a big cart", "a cart"): no judge can be right about all of them.
"""

import numpy as np
import torch

from clearformer.data.batch import EncoderBatch
from clearformer.data.masked_rows import room_for, side_by_side, word_starts
from clearformer.data.sentences import Sentences
from clearformer.data.store import Ragged
from clearformer.errors import DataError
from clearformer.text import Tokenizer

REAL, CHANGED = 0, 1
TRIES = 1000  # draws of a word that is another one


class CorruptedSentences:
    """Each row is a sentence, cut to `length` tokens with its frame; batches say of each whether it was changed."""

    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, length: int, deleted: float = 0.5) -> None:
        self.sentences, self.deleted = sentences, deleted
        self.pad_id, self.frame = tokenizer.pad_id, tokenizer.frame()
        self.room = room_for(self.frame, length, 1)
        self.lengths = np.minimum(np.diff(sentences.starts), self.room) + sum(map(len, self.frame))
        self.begins, self.is_special = word_starts(tokenizer), np.zeros(tokenizer.vocab_size, bool)
        self.is_special[tokenizer.special_ids] = True

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> EncoderBatch:
        """The sentences numbered by `rows` (B,)."""
        starts = self.sentences.starts
        flat, lengths = self.sentences.read(starts[rows], starts[rows + 1])
        classes = rng.integers(0, 2, len(rows))
        texts = np.split(flat, np.cumsum(lengths)[:-1])
        said = [self.slip(text, rng) if kind == CHANGED else text for text, kind in zip(texts, classes)]
        before, after = self.frame
        cut = [text[: self.room] for text in said]
        ragged = Ragged(np.concatenate(cut), np.array([len(text) for text in cut]))
        tokens, ends, _ = side_by_side([before, ragged, after], self.pad_id)
        mask = np.arange(tokens.shape[1]) < ends[:, None]
        return EncoderBatch(torch.from_numpy(tokens), torch.from_numpy(mask), classes=torch.from_numpy(classes))

    def slip(self, text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A sentence with one of its words, of those that will be seen, replaced or left out."""
        edges = np.append(self.edges(text), len(text))
        word = rng.integers(max(1, int(np.searchsorted(edges[:-1], self.room))))
        begin, end = edges[word], edges[word + 1]
        is_deleted = rng.random() < self.deleted and len(edges) > 2  # a single word is never left out
        put = text[:0] if is_deleted else self.another(text[begin:end], rng)
        return np.concatenate([text[:begin], put, text[end:]])

    def another(self, word: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A word of the text, drawn by its frequency, that is not the one given."""
        starts = self.sentences.starts
        for _ in range(TRIES):
            at = rng.integers(self.sentences.n_words)
            sentence = np.searchsorted(starts, at, side="right") - 1
            text = self.sentences.read(starts[sentence : sentence + 1], starts[sentence + 1 : sentence + 2]).flat
            edges = np.append(self.edges(text), len(text))
            inside = np.flatnonzero(edges[:-1] == at - starts[sentence])  # else a piece inside a word: draw again
            if len(inside):
                drawn = text[edges[inside[0]] : edges[inside[0] + 1]]
                if not self.is_special[drawn].any() and not np.array_equal(drawn, word):
                    return drawn
        raise DataError(f"{self.sentences.path} hardly has two words to exchange", "give more text")

    def edges(self, text: np.ndarray) -> np.ndarray:
        """Where the words of a sentence begin."""
        begins = self.begins[text]
        begins[0] = True
        return np.flatnonzero(begins)
