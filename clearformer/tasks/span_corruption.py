"""Text to a T5, or any model that reads one text and writes another, judged by how it restores dropped spans."""

from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from clearformer.data.batch import Batch
from clearformer.data.collate import pad_batch
from clearformer.data.corpora import TextCorpora
from clearformer.data.sentences import Sentences
from clearformer.data.spans import SpanConfig, drop_spans
from clearformer.data.spans import count as count_lost
from clearformer.data.store import DocumentStore, Ragged
from clearformer.data.text import store_text
from clearformer.errors import DataError
from clearformer.handles.translator import Translator
from clearformer.metric import LOSS, PERPLEXITY, Metric
from clearformer.objectives.span_corruption import SpanCorruption
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.tables import Tables
from clearformer.tasks.sampled_text import SampledTextTask
from clearformer.tasks.task import Pretrained
from clearformer.tasks.text_task import score_tokens
from clearformer.tasks.translation import start_id
from clearformer.text import Tokenizer

SENTINEL = "<extra_id_{}>"


class SpanRows:
    """Pieces of documents, `room` words each, the last of a document shorter; with some spans dropped."""

    def __init__(self, store: DocumentStore, tokenizer: Tokenizer, room: int, config: SpanConfig, start: int) -> None:
        self.words = Sentences(store, tokenizer.eos_id)  # a document is one sentence here: only its end is EOS
        self.places = self.words.full(room)
        self.tokenizer, self.config, self.start = tokenizer, config, start
        self.sentinels = sentinels(tokenizer)
        self.lengths = np.diff(self.places, axis=1)[:, 0] + 1  # with EOS; what is dropped leaves sentinels, not more

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        """The rows numbered by `rows` (B,)."""
        flat, lengths = self.words.read(*self.places[rows].T)
        texts = np.split(flat, np.cumsum(lengths)[:-1])
        pairs = [drop_spans(text, self.sentinels, self.config, rng) for text in texts]
        source, target = (Ragged.of([pair[side] for pair in pairs]) for side in (0, 1))
        return pad_batch(source, target, self.tokenizer.pad_id, self.start, self.tokenizer.eos_id)


class SpanCorruptionTask(SampledTextTask):
    data = TextCorpora
    objective = SpanCorruption
    n_tokenizers = 2  # the same for both sides

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return LOSS, PERPLEXITY

    def require(self, tokenizer: Tokenizer) -> None:
        n, needed = len(sentinels(tokenizer)), count_lost(self.room, self.recipe.objective)[1] + 1
        if n < needed:
            names = ", ".join(f'"{SENTINEL.format(n)}"' for n in range(min(needed, 2)))
            raise DataError(
                f"texts of {self.room} tokens lose spans that take {needed} sentinels, and the tokenizer has {n}",
                f"reserve them: text.extra = [{names}, …], or set data.length lower",
            )

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_text(documents, self.tokenizer, path)

    @property
    def room(self) -> int:
        """Words of a row, EOS not counted. In a row of a single word no context would be left."""
        if self.length < 3:
            raise DataError(f"rows of {self.length} tokens are too short to lose spans", "set data.length = 3 or more")
        return self.length - 1

    def make_rows(self, store: DocumentStore) -> SpanRows:
        start = start_id(self.recipe, self.tokenizer)
        return SpanRows(store, self.tokenizer, self.room, self.recipe.objective, start)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Loss without smoothing over the whole text, with the same spans dropped each time."""
        return score_tokens(Translation(TranslationConfig(label_smoothing=0.0)), model, self.fixed(split))

    def sample(self, model: nn.Module, step: int) -> str:
        """A text with its spans dropped, and what the model writes for them."""
        batch = next(self.fixed("valid"))
        assert isinstance(batch, Batch)
        row = step % len(batch)
        source = batch.source[row][batch.source_mask[row]].tolist()[:-1]
        writer = Translator(model, self.tokenizer, self.tokenizer, self.recipe.decode)
        best = writer.search([source], writer.decode.changed(beam=1, max_ratio=0.5), 1, None, [0])[0][0]
        return f"  {self.readable(source)}\n  → {self.readable(best.tokens)}"

    def readable(self, ids: list[int]) -> str:
        return " ".join(self.tokenizer.pieces(ids))

    @classmethod
    def handle(cls, model: Pretrained) -> Translator:
        source, target = model.source_tokenizer, model.target_tokenizer
        return Translator(model.network, source, target, model.recipe.decode, model.name)


def sentinels(tokenizer: Tokenizer) -> list[int]:
    """The ids of <extra_id_0>, <extra_id_1> and so on, as many as there are."""
    specials = {name: i for i, name in zip(tokenizer.special_ids, tokenizer.pieces(tokenizer.special_ids))}
    return [specials[name] for name in takewhile(specials.__contains__, map(SENTINEL.format, count()))]
