"""The span-corruption task of T5 and other encoder-decoder models: restore spans removed from a text."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from clearformer.data.batch import Batch
from clearformer.data.collate import pad_batch
from clearformer.data.corpora import TextCorpora
from clearformer.data.sentences import Sentences
from clearformer.data.spans import SpanConfig, drop_spans, span_counts
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
from clearformer.tasks.text_task import token_metrics
from clearformer.tasks.translation import start_id
from clearformer.text import Tokenizer
from clearformer.training.recompute import in_chunks
from clearformer.wording import count

SENTINEL = "<extra_id_{}>"


class SpanRows:
    """Stretches of documents with spans removed. A stretch has `length` tokens, or fewer at the end of a document."""

    def __init__(self, store: DocumentStore, tokenizer: Tokenizer, length: int, config: SpanConfig, start: int) -> None:
        self.words = Sentences(store, tokenizer.eos_id)  # a document is one sentence: it has a single EOS, at its end
        self.places = self.words.full(length)
        self.tokenizer, self.config, self.start = tokenizer, config, start
        self.sentinels = sentinels(tokenizer)
        self.lengths = np.diff(self.places, axis=1)[:, 0] + 1  # with EOS; removing spans never makes a row longer

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        """Remove spans from the rows with the indices `rows` (B,), and collate them."""
        flat, lengths = self.words.read(*self.places[rows].T)
        texts = np.split(flat, np.cumsum(lengths)[:-1])
        pairs = [drop_spans(text, self.sentinels, self.config, rng) for text in texts]
        source, target = (Ragged.of([pair[side] for pair in pairs]) for side in (0, 1))
        return pad_batch(source, target, self.tokenizer.pad_id, self.start, self.tokenizer.eos_id)


class SpanCorruptionTask(SampledTextTask):
    data = TextCorpora
    objective = SpanCorruption
    n_tokenizers = 2  # the same tokenizer for source and target

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return LOSS, PERPLEXITY

    def require(self, tokenizer: Tokenizer) -> None:
        n, needed = len(sentinels(tokenizer)), span_counts(self.text_length, self.recipe.objective)[1] + 1
        if n < needed:
            names = ", ".join(f'"{SENTINEL.format(n)}"' for n in range(min(needed, 2)))
            raise DataError(
                f"texts of {count(self.text_length, 'token')} need {count(needed, 'sentinel')}, "
                f"but the tokenizer has {n}",
                f"add sentinels by setting text.extra = [{names}, …], or lower data.length",
            )

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_text(documents, self.tokenizer, path)

    @property
    def text_length(self) -> int:
        """The number of tokens per row without EOS: at least 2, since a row of one token would have no context left."""
        if self.length < 3:
            raise DataError(
                f"rows of {count(self.length, 'token')} are too short for span corruption",
                "set data.length to at least 3",
            )
        return self.length - 1

    def make_rows(self, store: DocumentStore) -> SpanRows:
        start = start_id(self.recipe, self.tokenizer)
        return SpanRows(store, self.tokenizer, self.text_length, self.recipe.objective, start)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Compute the loss over the whole text, without label smoothing; the same spans are removed each time."""
        objective = Translation(TranslationConfig(label_smoothing=0.0))
        return token_metrics(in_chunks(objective, self.recipe.train.recompute), model, self.fixed(split))

    def sample(self, model: nn.Module, step: int) -> str:
        """Show a text with spans removed, and the model's output for these spans."""
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
    """Return the ids of <extra_id_0>, <extra_id_1> and so on, up to the first that the tokenizer lacks."""
    specials = {name: i for i, name in zip(tokenizer.special_ids, tokenizer.pieces(tokenizer.special_ids))}
    names = itertools.takewhile(specials.__contains__, map(SENTINEL.format, itertools.count()))
    return [specials[name] for name in names]
