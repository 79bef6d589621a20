"""Texts whose batches are drawn anew each time they are seen: words hidden, spans dropped, sentences changed.

    batch = rows.batch(numbers, generator(seed, epoch, number of the batch))

What is drawn is a function of these three alone: equal in a run that was resumed, whatever the number of ranks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Tensors
from clearformer.data.collate import TokenBatches
from clearformer.data.store import DocumentStore
from clearformer.errors import ConfigError
from clearformer.prepare import is_prepared
from clearformer.recipe import Recipe
from clearformer.tasks.causal_lm import learn_tokenizer, prepare_text
from clearformer.text import Tokenizer
from clearformer.training.distributed import World
from clearformer.training.feed import Steps

FIXED = 2**32  # the seed of what is judged, which no training has
FIXED_TOKENS = 8192  # of its batches: whatever [train] says, the same words are hidden at every validation of a text


class Rows(Protocol):
    """(n,) `lengths` of rows in tokens, padding not counted, and batches of them."""

    lengths: np.ndarray

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Tensors: ...


class DrawnTask(ABC):
    """What the tasks of this kind have in common. Each says how it stores text, what rows it has, how it is judged."""

    unit = "tokens"

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        self.recipe, self.run = recipe, run
        self.facts: dict[str, Any] = {}
        self.made: dict[str, Rows] = {}

    def prepare(self, base: Any) -> None:
        if is_prepared(self.run):
            return
        if base is not None:
            tokenizer = getattr(base, "target_tokenizer", None) or base.tokenizer
        else:
            tokenizer = learn_tokenizer(self.recipe)
        self.require(tokenizer)
        prepare_text(self.recipe, self.run, tokenizer, self.store)

    def open(self) -> Recipe:
        self.tokenizer = Tokenizer.load(self.run.path / "tokenizer.json")
        self.facts = {"tokenizers": [self.tokenizer.fingerprint()]}
        self.recipe = self.fitted()
        return self.recipe

    def describe(self, world: World) -> str:
        rows, train = self.rows("train"), self.recipe.train
        per_epoch = len(batches_of(rows, train.tokens, train.seed).steps(0, self.group(world)))
        return (
            f"{len(DocumentStore(self.path('train')).tokens):,} training tokens, vocabulary "
            f"{self.tokenizer.vocab_size:,}, {len(rows.lengths):,} rows of at most {self.length:,}, "
            f"{per_epoch:,} steps an epoch"
        )

    def steps(self, world: World) -> Steps:
        return DrawnSteps(self.rows("train"), self.recipe.train.tokens, self.recipe.train.seed, self.group(world))

    def group(self, world: World) -> int:
        return self.recipe.train.accumulation * world.size

    def path(self, split: str) -> Path:
        return self.run.data / f"{split}.safetensors"

    @property
    def length(self) -> int:
        """Tokens of a row, the frame included."""
        room, length = self.recipe.model.max_length, self.recipe.data.length
        if length is not None and length > room:
            raise ConfigError(
                f"data.length = {length} is more than model.max_length = {room}", f"set model.max_length = {length}"
            )
        return int(length or room)

    def fixed(self, split: str) -> Iterator[Tensors]:
        """Every row of a split once, the same batches each time, and in every run on the same rows."""
        rows = self.rows(split)
        for number, some in enumerate(batches_of(rows, FIXED_TOKENS, 0).epoch(0)):
            yield rows.batch(some, np.random.default_rng((FIXED, number)))

    def rows(self, split: str) -> Rows:
        if split not in self.made:
            self.made[split] = self.make(DocumentStore(self.path(split)))
        return self.made[split]

    @abstractmethod
    def require(self, tokenizer: Tokenizer) -> None:
        """See that a tokenizer has the special tokens that are needed, before the text is read."""

    @abstractmethod
    def store(self, documents: Iterable[str], tokenizer: Tokenizer, path: Path) -> DocumentStore:
        """Lay tokens on disk."""

    @abstractmethod
    def fitted(self) -> Recipe:
        """The recipe with the sizes that the tokenizer decides."""

    @abstractmethod
    def make(self, store: DocumentStore) -> Rows:
        """The rows of a split."""


def batches_of(rows: Rows, tokens: int, seed: int) -> TokenBatches:
    """Batches of a budget of tokens, rows of like length together."""
    return TokenBatches(rows.lengths[:, None].repeat(2, 1) - 1, tokens, seed)


class DrawnSteps:
    """The trainer's view: for each step of each epoch, the batches of every rank."""

    def __init__(self, rows: Rows, tokens: int, seed: int, group: int) -> None:
        self.rows, self.seed, self.group = rows, seed, group
        batches = batches_of(rows, tokens, seed)
        self.plan = lru_cache(maxsize=2)(lambda epoch: batches.steps(epoch, group))

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> tuple[list[Tensors], int]:
        """Each rank draws all batches of a step, to know how much the others predict; then it keeps its own."""
        first = position * self.group
        batches = [
            self.rows.batch(some, np.random.default_rng((self.seed, epoch, first + i)))
            for i, some in enumerate(self.plan(epoch)[position])
        ]
        return world.share(batches), max(1, sum(batch.n_tokens for batch in batches))
