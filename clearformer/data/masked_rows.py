"""Rows of sentences as an encoder reads them, framed by the tokenizer's special tokens, and some of their words hidden.

    FullSentences    <s> a … </s>                      sentences of one document, up to a length     Liu et al. 2019
    SentencePairs    [CLS] a … [SEP] b … [SEP]         b goes on from a, or comes from elsewhere     Devlin et al. 2019

A batch is a function of the rows and of a generator, so that an epoch can be repeated.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from clearformer.data.batch import EncoderBatch
from clearformer.data.masking import MaskingConfig, mask_tokens
from clearformer.data.sentences import Sentences
from clearformer.data.store import Ragged
from clearformer.errors import DataError
from clearformer.text import Tokenizer

FOLLOWS, RANDOM = 0, 1  # the classes of pairs, as BERT's head has them


class Laid(NamedTuple):
    """tokens (B, T) padded, lengths (B,), segments (B, T) and classes (B,) of pairs."""

    tokens: np.ndarray
    lengths: np.ndarray
    segments: np.ndarray | None = None
    classes: np.ndarray | None = None


class Form(Protocol):
    lengths: np.ndarray
    """(n,): the tokens of each row, frame included, or as many as it can have."""

    def lay(self, rows: np.ndarray, rng: np.random.Generator) -> Laid: ...


class FullSentences:
    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, length: int) -> None:
        self.sentences, self.pad_id, self.frame = sentences, tokenizer.pad_id, tokenizer.frame()
        self.rows = sentences.full(room_for(self.frame, length, 1))
        self.lengths = np.diff(self.rows, axis=1)[:, 0] + sum(map(len, self.frame))

    def lay(self, rows: np.ndarray, rng: np.random.Generator) -> Laid:
        before, after = self.frame
        return Laid(*side_by_side([before, self.sentences.read(*self.rows[rows].T), after], self.pad_id)[:2])


class SentencePairs:
    """Each row is a run of sentences, cut in two between any two of them. One half of the time the second part is kept;
    the other half, sentences of another document take its place, as many as fit, and what was there goes unseen this
    time. Where the text is one document, they come from anywhere else in it. Two parts that are too long together lose
    their ends, the longer one first.
    """

    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, length: int) -> None:
        self.sentences, self.pad_id, self.frame = sentences, tokenizer.pad_id, tokenizer.frame(is_pair=True)
        self.room = room_for(self.frame, length, 2)
        self.rows = sentences.runs(self.room)
        self.lengths = np.full(len(self.rows), length)
        if len(self.rows) == 0:
            raise DataError(
                f"{sentences.path}: no document has two sentences, so that none follows another",
                "let documents be longer, sentences end sooner, or set objective.next_sentence = false",
            )
        if len(sentences.documents) == 2 and len(self.rows) == 1:
            raise DataError(
                f"{sentences.path}: its {len(sentences)} sentences fill a single row, and there are no others",
                "give more text, ask for a shorter data.length, or set objective.next_sentence = false",
            )

    def lay(self, rows: np.ndarray, rng: np.random.Generator) -> Laid:
        starts, (first, end) = self.sentences.starts, self.rows[rows].T
        middle = rng.integers(first + 1, end)
        classes = rng.integers(0, 2, len(rows))
        n_a = starts[middle] - starts[first]
        other, last = self.elsewhere(first, end, rng)
        fitting = np.searchsorted(starts, starts[other] + self.room - n_a, side="right") - 1
        far = starts[other], starts[np.clip(fitting, other + 1, last)]
        begin_b, end_b = np.where(classes == FOLLOWS, (starts[middle], starts[end]), far)
        n_a, n_b = fit(n_a, end_b - begin_b, self.room)
        before, between, after = self.frame
        a = self.sentences.read(starts[first], starts[first] + n_a)
        b = self.sentences.read(begin_b, begin_b + n_b)
        tokens, lengths, places = side_by_side([before, a, between, b, after], self.pad_id)
        columns = np.arange(tokens.shape[1])
        segments = (columns >= places[3][:, None]) & (columns < lengths[:, None])
        return Laid(tokens, lengths, segments.astype("int64"), classes)

    def elsewhere(self, first: np.ndarray, end: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A sentence (B,) of another document, or outside the row where there is but one; and that document's end."""
        documents = self.sentences.documents
        if len(documents) > 2:
            own = np.searchsorted(documents, first, side="right") - 1
            first, end = documents[own], documents[own + 1]
        drawn = rng.integers(0, len(self.sentences) - (end - first))
        other = drawn + np.where(drawn >= first, end - first, 0)
        return other, documents[np.searchsorted(documents, other, side="right")]


class MaskedRows:
    """Rows of a form with some of their words hidden: batches for masked language modelling."""

    def __init__(self, form: Form, tokenizer: Tokenizer, config: MaskingConfig, whole_word: bool = False) -> None:
        if tokenizer.mask_id is None:
            raise no_mask()
        self.form, self.tokenizer, self.config = form, tokenizer, config
        self.mask_id, self.specials = tokenizer.mask_id, tokenizer.special_ids
        self.begins = word_starts(tokenizer) if whole_word else None
        self.lengths = form.lengths

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> EncoderBatch:
        """The rows numbered by `rows` (B,)."""
        laid = self.form.lay(rows, rng)
        words = None if self.begins is None else np.maximum(np.cumsum(self.begins[laid.tokens], axis=1) - 1, 0)
        vocab = self.tokenizer.vocab_size
        tokens, labels = mask_tokens(laid.tokens, self.config, rng, self.mask_id, vocab, self.specials, words)
        mask = np.arange(tokens.shape[1]) < laid.lengths[:, None]
        segments, classes = (None if x is None else torch.from_numpy(x) for x in (laid.segments, laid.classes))
        return EncoderBatch(
            torch.from_numpy(tokens), torch.from_numpy(mask), segments, torch.from_numpy(labels), classes
        )


def no_mask() -> DataError:
    return DataError("the tokenizer has no mask token to hide words behind", 'reserve one: text.extra = ["[MASK]"]')


def word_starts(tokenizer: Tokenizer) -> np.ndarray:
    """(V,) bool: the entries that begin a word, as their spelling tells: no ## (wordpiece), or a space, shown as ▁."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    goes_on = np.array([piece.startswith("##") for piece in pieces])
    spaced = np.array([piece.startswith(("▁", "⟨20")) for piece in pieces])
    # Both may occur: GPT-2 has an entry "##". The more frequent one is the rule; where there is neither, all are words.
    begins = spaced if spaced.sum() > goes_on.sum() else ~goes_on
    begins[tokenizer.special_ids] = True
    return begins


def room_for(frame: Sequence[Sequence[int]], length: int, least: int) -> int:
    """The words that a row of `length` tokens holds beside its frame."""
    n = sum(map(len, frame))
    if length < n + least:
        raise DataError(
            f"rows of {length} tokens are too short: their frame has {n}, and {least} more are needed",
            f"set data.length = {n + least} or more",
        )
    return length - n


def fit(n_a: np.ndarray, n_b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths (B,) of two texts that share `room`: the longer loses first, down to the other or to its half."""
    kept = np.minimum(n_a, np.maximum(room - n_b, (room + 1) // 2))
    return kept, np.minimum(n_b, room - kept)


def side_by_side(
    parts: Sequence[Ragged | Sequence[int]], pad_id: int
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Parts after one another in each of B rows, ragged ones and those that are alike in all: a table (B, T), padded;
    the rows' lengths (B,); and where each part begins, (B,) each.
    """
    B = next(len(part.lengths) for part in parts if isinstance(part, Ragged))
    ragged = [p if isinstance(p, Ragged) else Ragged(np.tile(p, B), np.full(B, len(p))) for p in parts]
    ends = np.cumsum([part.lengths for part in ragged], axis=0)  # (parts, B)
    table = np.full((B, int(ends[-1].max())), pad_id, "int64")
    places = [end - part.lengths for part, end in zip(ragged, ends)]
    for (flat, lengths), place in zip(ragged, places):
        inside = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table[np.repeat(np.arange(B), lengths), inside + np.repeat(place, lengths)] = flat
    return table, ends[-1], places
