"""Tasks on randomly corrupted text: tokens masked, spans removed or sentences changed, differently in every epoch.

    batch = rows.batch(indices, generator(seed, epoch, index of the batch))

The random draws depend only on these three numbers, so they do not change after resuming or with the number of
processes.
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
FIXED_TOKENS = 8192  # tokens per validation or test batch, independent of [train], so that the corruption never changes


class Rows(Protocol):
    """The rows of a text. `lengths` (n,) counts the tokens of each, without padding; `batch` corrupts some rows."""

    lengths: np.ndarray

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Tensors: ...


class SampledBatches:
    """Batches of rows of similar length, with at most `tokens` tokens each, including padding.

    Each batch is corrupted at random; (seed, epoch, index of the batch) seeds the random draws.
    """

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
        """Yield every row once, in the same batches and with the same corruption each time."""
        for index, rows in enumerate(self.batches.epoch(0)):
            yield self.rows.batch(rows, np.random.default_rng((FIXED, index)))


class SampledTextTask(TextTask):
    """The base class of tasks on randomly corrupted text. Subclasses define the rows."""

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.rows_by_split: dict[str, Rows] = {}

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        """Check the length of rows; if the model takes its sizes from a base model, `learn` checks it instead."""
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
        """Return the rows of a split. They are read once and cached."""
        if split not in self.rows_by_split:
            self.rows_by_split[split] = self.make_rows(DocumentStore(self.path(split)))
        return self.rows_by_split[split]

    @abstractmethod
    def make_rows(self, store: DocumentStore) -> Rows:
        """Divide a tokenised text into rows."""

    def split(self, name: str) -> SampledBatches:
        return SampledBatches(self.rows(name), self.recipe.train.tokens, self.recipe.train.seed)

    def fixed(self, split: str) -> Iterator[Tensors]:
        """Yield every row of a split once. The batches are the same each time, and in every run on the same text."""
        return SampledBatches(self.rows(split), FIXED_TOKENS, 0).fixed()

    def describe(self) -> str:
        return (
            f"{count(len(DocumentStore(self.path('train')).tokens), 'training token')}, vocabulary "
            f"{self.tokenizer.vocab_size:,}, {count(len(self.rows('train').lengths), 'row')} of at most "
            f"{count(self.length, 'token')}"
        )


def row_length(recipe: Tables, where: str = "") -> int:
    """Return the number of tokens per row, including special tokens."""
    max_length, length = recipe.model.max_length, recipe.data.length
    if length is not None and length > max_length:
        raise ConfigError(
            f"{where}data.length = {length} is more than model.max_length = {max_length}",
            f"set data.length = {max_length} or model.max_length = {length}",
        )
    return int(length or max_length)
