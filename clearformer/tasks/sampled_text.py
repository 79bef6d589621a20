"""Text with random corruption: batches mask tokens, remove spans or change sentences differently in every epoch.

    batch = rows.batch(indices, generator(seed, epoch, index of the batch))

The random draws depend only on these three, so they are the same after resuming and for any number of processes.
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
from clearformer.wording import count

FIXED = 2**32  # seed of validation and test; train.seed cannot have this value
FIXED_TOKENS = 8192  # tokens per batch of validation and test, independent of [train]: the corruption stays the same


class Rows(Protocol):
    """Rows with their `lengths` (n,) in tokens, without padding, and batches of them."""

    lengths: np.ndarray

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Tensors: ...


class SampledBatches:
    """Batches of rows of similar length, `tokens` each, corrupted at random by (seed, epoch, index of the batch)."""

    is_drawn = True

    def __init__(self, rows: Rows, tokens: int, seed: int) -> None:
        self.rows, self.seed = rows, seed
        self.batches = TokenBatches(rows.lengths[:, None].repeat(2, 1) - 1, tokens, seed)

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        return self.batches.steps(epoch, group)

    def batch(self, rows: np.ndarray, key: tuple[int, ...]) -> Tensors:
        return self.rows.batch(rows, np.random.default_rng((self.seed, *key)))

    def count(self, rows: np.ndarray) -> int:
        raise NotImplementedError("the number of targets is known only after a batch is drawn")

    def fixed(self) -> Iterator[Tensors]:
        """Every row once, in the same batches each time."""
        for index, rows in enumerate(self.batches.epoch(0)):
            yield self.rows.batch(rows, np.random.default_rng((FIXED, index)))


class SampledTextTask(TextTask):
    """The base class of these tasks. Subclasses define the rows."""

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.rows_by_split: dict[str, Rows] = {}

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        """If the sizes of the model come from a base, `learn` checks the length of rows instead."""
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
        """The rows of a split; read once and cached."""
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
            f"{count(len(DocumentStore(self.path('train')).tokens), 'training token')}, vocabulary "
            f"{self.tokenizer.vocab_size:,}, {count(len(self.rows('train').lengths), 'row')} of at most "
            f"{count(self.length, 'token')}"
        )


def row_length(recipe: Tables, where: str = "") -> int:
    """Tokens per row, including special tokens."""
    max_length, length = recipe.model.max_length, recipe.data.length
    if length is not None and length > max_length:
        raise ConfigError(
            f"{where}data.length = {length} is more than model.max_length = {max_length}",
            f"set data.length = {max_length} or model.max_length = {length}",
        )
    return int(length or max_length)
