"""Prepare original and corrupted sentences, for a model that learns to distinguish them.

    the man pulled a cart        original, half of the time
    the man market a cart        a word replaced by another word of the corpus, drawn by frequency
    the man a cart               a word deleted

Some changes produce a correct sentence ("a big cart" to "a cart"), so no model can reach an accuracy of 100 %.
"""

import numpy as np
import torch

from clearformer.data.batch import EncoderBatch
from clearformer.data.masked_rows import side_by_side, text_capacity, word_starts
from clearformer.data.sentences import Sentences
from clearformer.data.store import Ragged
from clearformer.errors import DataError
from clearformer.text import Tokenizer

REAL, CHANGED = 0, 1
TRIES = 1000  # draws before giving up on finding a different word


class CorruptedSentences:
    """Rows of one sentence each, truncated to `length` tokens including special tokens, with class REAL or CHANGED."""

    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, length: int, deleted: float = 0.5) -> None:
        self.sentences, self.deleted = sentences, deleted
        self.pad_id, self.special_tokens = tokenizer.pad_id, tokenizer.specials_around()
        self.capacity = text_capacity(self.special_tokens, length, 1)
        self.lengths = np.minimum(np.diff(sentences.starts), self.capacity) + sum(map(len, self.special_tokens))
        self.begins, self.is_special = word_starts(tokenizer), np.zeros(tokenizer.vocab_size, bool)
        self.is_special[tokenizer.special_ids] = True

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> EncoderBatch:
        """Return a batch of the sentences with the indices `rows` (B,); each is corrupted with probability 1/2."""
        starts = self.sentences.starts
        flat, lengths = self.sentences.read(starts[rows], starts[rows + 1])
        classes = rng.integers(0, 2, len(rows))
        texts = np.split(flat, np.cumsum(lengths)[:-1])
        rewritten = [self.corrupt(text, rng) if kind == CHANGED else text for text, kind in zip(texts, classes)]
        before, after = self.special_tokens
        cut = [text[: self.capacity] for text in rewritten]
        ragged = Ragged(np.concatenate(cut), np.array([len(text) for text in cut]))
        tokens, ends, _ = side_by_side([before, ragged, after], self.pad_id)
        mask = np.arange(tokens.shape[1]) < ends[:, None]
        return EncoderBatch(torch.from_numpy(tokens), torch.from_numpy(mask), classes=torch.from_numpy(classes))

    def corrupt(self, text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Replace or delete one word of a sentence; the word is chosen from the part that truncation keeps."""
        edges = np.append(self.edges(text), len(text))
        word = rng.integers(max(1, int(np.searchsorted(edges[:-1], self.capacity))))
        begin, end = edges[word], edges[word + 1]
        is_deleted = rng.random() < self.deleted and len(edges) > 2  # the only word is never deleted
        replacement = text[:0] if is_deleted else self.draw_different(text[begin:end], rng)
        return np.concatenate([text[:begin], replacement, text[end:]])

    def draw_different(self, word: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a word of the corpus other than `word`, with a probability proportional to its frequency."""
        starts = self.sentences.starts
        for _ in range(TRIES):
            at = rng.integers(self.sentences.n_text_tokens)
            sentence = np.searchsorted(starts, at, side="right") - 1
            text = self.sentences.read(starts[sentence : sentence + 1], starts[sentence + 1 : sentence + 2]).flat
            edges = np.append(self.edges(text), len(text))
            inside = np.flatnonzero(edges[:-1] == at - starts[sentence])  # empty inside a word: draw again
            if len(inside):
                drawn = text[edges[inside[0]] : edges[inside[0] + 1]]
                if not self.is_special[drawn].any() and not np.array_equal(drawn, word):
                    return drawn
        raise DataError(f"{self.sentences.path} has too few different words to replace one with another", "add text")

    def edges(self, text: np.ndarray) -> np.ndarray:
        """Return the positions at which the words of a sentence begin."""
        begins = self.begins[text]
        begins[0] = True
        return np.flatnonzero(begins)
