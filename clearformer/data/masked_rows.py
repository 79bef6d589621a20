"""Build rows of sentences for an encoder, with special tokens, and mask some of their words.

    FullSentences    <s> a … </s>                      as many sentences of a document as fit        Liu et al. 2019
    SentencePairs    [CLS] a … [SEP] b … [SEP]         b follows a, or is from elsewhere             Devlin et al. 2019

A batch is a function of the row indices and a generator, so that an epoch can be repeated. With `fixed_masks`, masks
and pairs are a function of the row and of the version that the generator chooses.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from clearformer.data.batch import EncoderBatch
from clearformer.data.masking import MaskingConfig, mask_tokens
from clearformer.data.row_draws import Draws, RowDraws
from clearformer.data.sentences import Sentences
from clearformer.data.store import Ragged
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.wording import count

FOLLOWS, RANDOM = 0, 1  # the classes of pairs, in the order of BERT's next-sentence head


class TokenRows(NamedTuple):
    """A batch of rows: padded tokens (B, T) and lengths (B,); for pairs also segments (B, T) and classes (B,)."""

    tokens: np.ndarray
    lengths: np.ndarray
    segments: np.ndarray | None = None
    classes: np.ndarray | None = None


class RowFormat(Protocol):
    lengths: np.ndarray
    """The number of tokens of each row, special tokens included, or an upper bound: (n,)."""

    def assemble(self, rows: np.ndarray, rng: Draws) -> TokenRows: ...


class FullSentences:
    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, length: int) -> None:
        self.sentences, self.pad_id, self.special_tokens = sentences, tokenizer.pad_id, tokenizer.specials_around()
        self.rows = sentences.full(text_capacity(self.special_tokens, length, 1))
        self.lengths = np.diff(self.rows, axis=1)[:, 0] + sum(map(len, self.special_tokens))

    def assemble(self, rows: np.ndarray, rng: Draws) -> TokenRows:
        before, after = self.special_tokens
        return TokenRows(*side_by_side([before, self.sentences.read(*self.rows[rows].T), after], self.pad_id)[:2])


class SentencePairs:
    """Each row is a sequence of consecutive sentences, divided into two parts at a random sentence boundary.

    With probability 1/2 the second part stays. Otherwise it is replaced by as many sentences of another document as
    fit; if the corpus is a single document, by sentences of that document outside the row. If the two parts together
    are too long, they are truncated at their ends, the longer one first.
    """

    def __init__(self, sentences: Sentences, tokenizer: Tokenizer, length: int) -> None:
        self.sentences, self.pad_id = sentences, tokenizer.pad_id
        self.special_tokens = tokenizer.specials_around(is_pair=True)
        self.capacity = text_capacity(self.special_tokens, length, 2)
        self.rows = sentences.runs(self.capacity)
        self.lengths = np.full(len(self.rows), length)
        if len(self.rows) == 0:
            raise DataError(
                f"{sentences.path}: no document has two sentences, the minimum for next-sentence prediction",
                'use longer documents, set data.sentences = "mark", or set objective.next_sentence = false',
            )
        if len(sentences.documents) == 2 and len(self.rows) == 1:
            raise DataError(
                f"{sentences.path}: no random next sentence can be drawn, because one row "
                f"contains all {count(len(sentences), 'sentence')}",
                "add text, set a smaller data.length, or set objective.next_sentence = false",
            )

    def assemble(self, rows: np.ndarray, rng: Draws) -> TokenRows:
        starts, (first, end) = self.sentences.starts, self.rows[rows].T
        middle = rng.integers(first + 1, end)
        classes = rng.integers(0, 2, len(rows))
        n_a = starts[middle] - starts[first]
        other, last = self.elsewhere(first, end, rng)
        fitting = np.searchsorted(starts, starts[other] + self.capacity - n_a, side="right") - 1
        far = starts[other], starts[np.clip(fitting, other + 1, last)]
        begin_b, end_b = np.where(classes == FOLLOWS, (starts[middle], starts[end]), far)
        n_a, n_b = fit(n_a, end_b - begin_b, self.capacity)
        before, between, after = self.special_tokens
        a = self.sentences.read(starts[first], starts[first] + n_a)
        b = self.sentences.read(begin_b, begin_b + n_b)
        tokens, lengths, places = side_by_side([before, a, between, b, after], self.pad_id)
        columns = np.arange(tokens.shape[1])
        segments = (columns >= places[3][:, None]) & (columns < lengths[:, None])
        return TokenRows(tokens, lengths, segments.astype("int64"), classes)

    def elsewhere(self, first: np.ndarray, end: np.ndarray, rng: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Draw a sentence of another document for each row. Returns the sentences (B,) and the ends of their documents.

        If the corpus is a single document, the sentence is drawn from outside the row.
        """
        documents = self.sentences.documents
        if len(documents) > 2:
            document = np.searchsorted(documents, first, side="right") - 1
            first, end = documents[document], documents[document + 1]
        drawn = rng.integers(0, len(self.sentences) - (end - first))
        other = drawn + np.where(drawn >= first, end - first, 0)
        return other, documents[np.searchsorted(documents, other, side="right")]


class MaskedRows:
    """Rows in a given format with some words masked: batches for masked language modelling."""

    def __init__(
        self, row_format: RowFormat, tokenizer: Tokenizer, config: MaskingConfig, whole_word: bool = False
    ) -> None:
        if tokenizer.mask_id is None:
            raise no_mask()
        self.row_format, self.tokenizer, self.config = row_format, tokenizer, config
        self.mask_id, self.specials = tokenizer.mask_id, tokenizer.special_ids
        self.begins = word_starts(tokenizer) if whole_word else None
        self.lengths = row_format.lengths

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> EncoderBatch:
        """Return a batch of the rows with the indices `rows` (B,), with some words masked."""
        draw: Draws = rng
        if (n := self.config.fixed_masks) is not None:
            draw = RowDraws(rows, rng.integers(0, n, len(rows)), int(self.lengths.max()))
        original = self.row_format.assemble(rows, draw)
        words = None if self.begins is None else np.maximum(np.cumsum(self.begins[original.tokens], axis=1) - 1, 0)
        vocab = self.tokenizer.vocab_size
        tokens, labels = mask_tokens(original.tokens, self.config, draw, self.mask_id, vocab, self.specials, words)
        mask = np.arange(tokens.shape[1]) < original.lengths[:, None]
        segments, classes = (None if x is None else torch.from_numpy(x) for x in (original.segments, original.classes))
        return EncoderBatch(
            torch.from_numpy(tokens), torch.from_numpy(mask), segments, torch.from_numpy(labels), classes
        )


def no_mask() -> DataError:
    """Return the error for a tokenizer without a mask token."""
    return DataError("the tokenizer has no mask token", 'add one in the recipe: text.extra = ["[MASK]"]')


def word_starts(tokenizer: Tokenizer) -> np.ndarray:
    """Return whether each token begins a word, (V,) bool: it has a leading space (▁) or, in wordpiece, lacks ##."""
    tokens = tokenizer.pieces(range(tokenizer.vocab_size))
    continues = np.array([token.startswith("##") for token in tokens])
    spaced = np.array([token.startswith(("▁", "⟨20")) for token in tokens])
    # Both may occur: GPT-2 has a token "##". The more frequent one decides; if neither occurs, every token is a word.
    begins = spaced if spaced.sum() > continues.sum() else ~continues
    begins[tokenizer.special_ids] = True
    return begins


def text_capacity(special_tokens: Sequence[Sequence[int]], length: int, minimum: int) -> int:
    """Return the number of text tokens that fit into a row of `length` tokens in addition to the special tokens."""
    n = sum(map(len, special_tokens))
    if length < n + minimum:
        raise DataError(
            f"rows of {count(length, 'token')} are too short for {count(n, 'special token')} "
            f"and at least {count(minimum, 'token')} of text",
            f"set data.length to at least {n + minimum}",
        )
    return length - n


def fit(n_a: np.ndarray, n_b: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths (B,) of two texts after truncation to a sum of at most `capacity`.

    The longer text is truncated first, until both are equally long or the sum fits.
    """
    fitted_a = np.minimum(n_a, np.maximum(capacity - n_b, (capacity + 1) // 2))
    return fitted_a, np.minimum(n_b, capacity - fitted_a)


def side_by_side(
    parts: Sequence[Ragged | Sequence[int]], pad_id: int
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Concatenate parts in each of B rows. A part is ragged, or one sequence that is repeated in every row.

    Returns a padded table (B, T), the lengths of the rows (B,), and for each part the columns (B,) where it begins.
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
