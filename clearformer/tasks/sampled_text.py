"""Text whose batches are drawn at random each time they are seen: words hidden, spans dropped, sentences changed.

    batch = rows.batch(numbers, generator(seed, epoch, number of the batch))

What is drawn depends on these three alone. So a resumed run draws the same, and so does any number of ranks.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Tensors
from clearformer.data.collate import TokenBatches
from clearformer.data.store import DocumentStore
from clearformer.errors import ConfigError
from clearformer.tables import Tables
from clearformer.tasks.task import Pretrained
from clearformer.tasks.text_task import TextTask

FIXED = 2**32  # the seed of validation and test, which no training can have
FIXED_TOKENS = 8192  # tokens of their batches, whatever [train] says: every validation hides the same words


class Rows(Protocol):
    """(n,) `lengths` of rows in tokens, padding not counted, and batches of them."""

    lengths: np.ndarray

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Tensors: ...


class SampledBatches:
    """Rows in batches of a budget of tokens, alike in length, and drawn by (seed, epoch, number of the batch)."""

    is_drawn = True

    def __init__(self, rows: Rows, tokens: int, seed: int) -> None:
        self.rows, self.seed = rows, seed
        self.batches = TokenBatches(rows.lengths[:, None].repeat(2, 1) - 1, tokens, seed)

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        return self.batches.steps(epoch, group)

    def batch(self, rows: np.ndarray, key: tuple[int, ...]) -> Tensors:
        return self.rows.batch(rows, np.random.default_rng((self.seed, *key)))

    def count(self, rows: np.ndarray) -> int:
        raise NotImplementedError("targets are counted once a batch is drawn")

    def fixed(self) -> Iterator[Tensors]:
        """Every row once, in the same batches each time."""
        for number, rows in enumerate(self.batches.epoch(0)):
            yield self.rows.batch(rows, np.random.default_rng((FIXED, number)))


class SampledTextTask(TextTask):
    """The base of these tasks. Each says what its rows are."""

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.rows_by_split: dict[str, Rows] = {}

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        """Where the sizes of the model come from a base, `learn` checks the length of rows."""
        has_base = recipe.tuning is not None and recipe.tuning.base is not None
        if recipe.data is not None and hasattr(recipe.model, "max_length") and not has_base:
            row_length(recipe, f"{where}: ")

    def learn(self, base: Pretrained | None, survey: Any) -> None:
        row_length(self.recipe)
        super().learn(base, survey)

    @property
    def length(self) -> int:
        return row_length(self.recipe)

    def rows(self, split: str) -> Rows:
        """The rows of a split, read once."""
        if split not in self.rows_by_split:
            self.rows_by_split[split] = self.make_rows(DocumentStore(self.path(split)))
        return self.rows_by_split[split]

    @abstractmethod
    def make_rows(self, store: DocumentStore) -> Rows:
        """The rows of a tokenised text."""

    def split(self, name: str) -> SampledBatches:
        return SampledBatches(self.rows(name), self.recipe.train.tokens, self.recipe.train.seed)

    def fixed(self, split: str) -> Iterator[Tensors]:
        """Every row of a split once: the same batches each time, and in every run on the same text."""
        return SampledBatches(self.rows(split), FIXED_TOKENS, 0).fixed()

    def describe(self) -> str:
        return (
            f"{len(DocumentStore(self.path('train')).tokens):,} training tokens, vocabulary "
            f"{self.tokenizer.vocab_size:,}, {len(self.rows('train').lengths):,} rows of at most {self.length:,}"
        )


def row_length(recipe: Tables, where: str = "") -> int:
    """Tokens of a row, special tokens included."""
    room, length = recipe.model.max_length, recipe.data.length
    if length is not None and length > room:
        raise ConfigError(
            f"{where}data.length = {length} is more than model.max_length = {room}", f"set model.max_length = {length}"
        )
    return int(length or room)
