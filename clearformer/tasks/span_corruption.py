"""Text to a T5, or any model that reads one text and writes another, judged by the spans it gives back."""

from collections.abc import Iterable
from itertools import count, takewhile
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from clearformer.data.batch import Batch
from clearformer.data.collate import pad_batch
from clearformer.data.sentences import Sentences
from clearformer.data.spans import SpanConfig, drop_spans
from clearformer.data.spans import count as count_lost
from clearformer.data.store import DocumentStore, Ragged
from clearformer.data.text import store_text
from clearformer.errors import DataError
from clearformer.handles.translator import Translator
from clearformer.loading.handles import load_as
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.prepare import start_id
from clearformer.recipe import Recipe
from clearformer.tasks import tell_loss
from clearformer.tasks.drawn import DrawnTask
from clearformer.text import Tokenizer
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast

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


class SpanCorruptionTask(DrawnTask):
    metrics = ("loss", "perplexity")

    def require(self, tokenizer: Tokenizer) -> None:
        found, needed = len(sentinels(tokenizer)), count_lost(self.room, self.recipe.objective)[1] + 1
        if found < needed:
            names = ", ".join(f'"{SENTINEL.format(n)}"' for n in range(min(needed, 2)))
            raise DataError(
                f"texts of {self.room} tokens lose spans that take {needed} sentinels, and the tokenizer has {found}",
                f"reserve them: text.extra = [{names}, …], or set data.length lower",
            )

    def store(self, documents: Iterable[str], tokenizer: Tokenizer, path: Path) -> DocumentStore:
        return store_text(documents, tokenizer, path)

    def fitted(self) -> Recipe:
        self.facts = {"tokenizers": [self.tokenizer.fingerprint()] * 2}  # one for each side
        size = self.tokenizer.vocab_size
        return self.recipe.with_vocab(source_vocab=size, target_vocab=size)

    @property
    def room(self) -> int:
        """Words of a row: EOS comes on top. Of a single word nothing would be left to tell it from."""
        if self.length < 3:
            raise DataError(f"rows of {self.length} tokens are too short to lose spans", "set data.length = 3 or more")
        return self.length - 1

    def make(self, store: DocumentStore) -> SpanRows:
        start = start_id(self.recipe, self.tokenizer)
        return SpanRows(store, self.tokenizer, self.room, self.recipe.objective, start)

    def validation(self, device: torch.device) -> Validate:
        """Loss without smoothing over the whole validation text, the same spans dropped each time; and a sample."""
        recipe, plain = self.recipe, Translation(TranslationConfig(label_smoothing=0.0))

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, recipe.train.precision):
                loss = tell_loss(plain, model, self.fixed("valid"), device)
                told = self.guess(Translator(model, self.tokenizer, self.tokenizer, recipe.decode), step)
            console.print(told, style="dim", markup=False)
            return {"loss": loss, "perplexity": exp(loss)}

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not self.path("test").exists():
            return {}
        model = load_as(Translator, self.run.path, str(device)).model
        with torch.no_grad():
            loss = tell_loss(Translation(TranslationConfig(label_smoothing=0.0)), model, self.fixed("test"), device)
        console.print(f"test: loss {loss:.4f}, perplexity {exp(loss):.2f} of what was dropped")
        return {"loss": loss, "perplexity": exp(loss)}

    def guess(self, model: Translator, step: int) -> str:
        """A text with its spans dropped, and what the model thinks they were."""
        batch = next(self.fixed("valid"))
        assert isinstance(batch, Batch)
        row = step % len(batch)
        source = batch.source[row][batch.source_mask[row]].tolist()[:-1]
        found = model.search([source], model.decode.changed(beam=1, max_ratio=0.5), 1, None, [0])[0][0]
        return f"  {self.readable(source)}\n  → {self.readable(found.tokens)}"

    def readable(self, ids: list[int]) -> str:
        return " ".join(self.tokenizer.pieces(ids))


def sentinels(tokenizer: Tokenizer) -> list[int]:
    """The ids of <extra_id_0>, <extra_id_1> and so on, as many as there are."""
    specials = {name: i for i, name in zip(tokenizer.special_ids, tokenizer.pieces(tokenizer.special_ids))}
    return [specials[name] for name in takewhile(specials.__contains__, map(SENTINEL.format, count()))]
