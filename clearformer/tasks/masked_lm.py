"""Text to a BERT or a RoBERTa, judged by the words it finds behind their masks in text it has not read.

Which of the two, the objective says: with `next_sentence`, rows are pairs of texts; without, full sentences.
"""

from collections.abc import Iterable
from math import exp
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import IGNORE, EncoderBatch, Tensors
from clearformer.data.framed import FullSentences, MaskedRows, SentencePairs, no_mask
from clearformer.data.sentences import Sentences, store_sentences
from clearformer.data.store import DocumentStore
from clearformer.errors import ConfigError
from clearformer.loading.opening import open_model
from clearformer.objectives.masked_lm import asked_for, cross_entropy
from clearformer.recipe import Recipe
from clearformer.tasks.drawn import DrawnTask
from clearformer.text import Tokenizer
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast

SHOWN = 48  # tokens of the sample at each validation


class MaskedLMTask(DrawnTask):
    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.has_pairs = recipe.objective.next_sentence
        self.metrics: tuple[str, ...] = ("loss", "perplexity", "accuracy")
        if self.has_pairs:
            self.metrics += ("next_sentence",)
            if not getattr(recipe.model, "next_sentence_head", False):
                raise ConfigError(
                    "objective.next_sentence = true asks a model that has no head for it",
                    "set model.next_sentence_head = true, or objective.next_sentence = false",
                )

    def require(self, tokenizer: Tokenizer) -> None:
        if tokenizer.mask_id is None:
            raise no_mask()

    def store(self, documents: Iterable[str], tokenizer: Tokenizer, path: Path) -> DocumentStore:
        return store_sentences(documents, tokenizer, path, self.recipe.data.sentences)

    def fitted(self) -> Recipe:
        """A head that nothing is asked of is not built: weights that never learn should not be saved as if they had."""
        heads = {} if self.has_pairs else {"next_sentence_head": False, "pooler": False}
        known = {name: off for name, off in heads.items() if name in type(self.recipe.model).model_fields}
        return self.recipe.with_vocab(vocab=self.tokenizer.vocab_size).with_model(**known)

    def make(self, store: DocumentStore) -> MaskedRows:
        form = SentencePairs if self.has_pairs else FullSentences
        rows = form(Sentences(store, self.tokenizer.eos_id), self.tokenizer, self.length)
        objective = self.recipe.objective
        return MaskedRows(rows, self.tokenizer, objective, objective.whole_word)

    def validation(self, device: torch.device) -> Validate:
        """Over the whole validation text, the same words hidden each time; and a sample with its guesses."""
        precision = self.recipe.train.precision

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, precision):
                scores = measure(model, self.fixed("valid"), device)
                told = self.guesses(model, next(self.fixed("valid")), step, device)
            console.print(f"  {told}", style="dim", markup=False)
            return scores

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not self.path("test").exists():
            return {}
        model = open_model(self.run.path, str(device)).network.eval()
        scores = measure(model, self.fixed("test"), device)
        console.print("test: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return scores

    def guesses(self, model: Any, batch: Tensors, step: int, device: torch.device) -> str:
        """A row of a batch as text, in which "‹cart: horse›" was "cart", hidden, and is taken for "horse"."""
        assert isinstance(batch, EncoderBatch)
        assert batch.labels is not None
        asked = (batch.labels[:, :SHOWN] != IGNORE).any(1).nonzero()[:, 0].tolist() or [0]
        row = asked[step % len(asked)]
        said = model(batch.to(device))[row, :SHOWN].argmax(-1).tolist()
        tokens, labels = batch.tokens[row, :SHOWN].tolist(), batch.labels[row, :SHOWN].tolist()
        frame = {self.tokenizer.pad_id, self.tokenizer.bos_id, self.tokenizer.eos_id}
        words = []
        for token, label, guess in zip(tokens, labels, said):
            if label != IGNORE:
                words.append("‹{}: {}›".format(*self.tokenizer.pieces([label, guess])))
            elif token not in frame:
                words += self.tokenizer.pieces([token])
        return " ".join(words)


@torch.no_grad()
def measure(model: Any, batches: Iterable[Tensors], device: torch.device) -> dict[str, float]:
    """Loss, perplexity and accuracy of the words that are asked for, and accuracy of the next sentence, if it is."""
    loss, right, n_words, followed, n_rows = 0.0, 0, 0, 0, 0
    for batch in batches:
        assert isinstance(batch, EncoderBatch)
        batch = batch.to(device)
        hidden = model.hidden(batch)
        vectors, labels = asked_for(hidden, batch)
        logits = model.head(vectors)
        loss += float(cross_entropy(logits, labels, "sum"))
        right += int((logits.argmax(-1) == labels).sum())
        n_words += batch.n_tokens
        if batch.classes is not None:
            followed += int((model.next_sentence(model.pooled(hidden)).argmax(-1) == batch.classes).sum())
            n_rows += len(batch)
    mean = loss / max(1, n_words)
    scores = {"loss": mean, "perplexity": exp(mean), "accuracy": right / max(1, n_words)}
    return scores | ({"next_sentence": followed / n_rows} if n_rows else {})
