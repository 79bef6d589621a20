"""Sentences to a judge of sentences, by how well it tells those of text it has not read from changed ones."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import EncoderBatch, Tensors
from clearformer.data.sentences import Sentences, store_sentences
from clearformer.data.slips import Slips
from clearformer.data.store import DocumentStore
from clearformer.errors import ConfigError
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.loading.handles import load_as
from clearformer.objectives.masked_lm import cross_entropy
from clearformer.recipe import Recipe
from clearformer.tasks.drawn import DrawnTask
from clearformer.text import Tokenizer
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast


class SentenceScoreTask(DrawnTask):
    metrics = ("loss", "accuracy")
    unit = "examples"

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        super().__init__(recipe, run)
        if not getattr(recipe.model, "next_sentence_head", False):
            raise ConfigError(
                'objective.kind = "sentence-score" asks a model that has no head for it',
                'set model.kind = "bert" and model.next_sentence_head = true',
            )

    def require(self, tokenizer: Tokenizer) -> None:
        """Nothing but a frame is needed, and every tokenizer has one."""

    def store(self, documents: Iterable[str], tokenizer: Tokenizer, path: Path) -> DocumentStore:
        return store_sentences(documents, tokenizer, path, self.recipe.data.sentences)

    def fitted(self) -> Recipe:
        """Without the head that says words, which are not asked for."""
        return self.recipe.with_vocab(vocab=self.tokenizer.vocab_size).with_model(word_head=False)

    def make(self, store: DocumentStore) -> Slips:
        sentences = Sentences(store, self.tokenizer.eos_id)
        return Slips(sentences, self.tokenizer, self.length, self.recipe.objective.deleted)

    def validation(self, device: torch.device) -> Validate:
        """Over all validation sentences, changed alike each time; and two of them with how sure the model is."""
        precision = self.recipe.train.precision

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, precision):
                scores = measure(model, self.fixed("valid"), device)
                told = self.sample(model, next(self.fixed("valid")), device)
            console.print(told, style="dim", markup=False)
            return scores

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not self.path("test").exists():
            return {}
        model = load_as(SentenceScorer, self.run.path, str(device)).model
        scores = measure(model, self.fixed("test"), device)
        console.print(f"test: loss {scores['loss']:.4f}, accuracy {scores['accuracy']:.4f}")
        return scores

    def sample(self, model: Any, batch: Tensors, device: torch.device) -> str:
        """The first sentence that was left as it was, and the first that was changed."""
        assert isinstance(batch, EncoderBatch)
        assert batch.classes is not None
        answers = model.next_sentence(model.pooled(model.hidden(batch.to(device)))).softmax(-1)
        lines = []
        for kind, name in enumerate(("real", "changed")):
            for row in (batch.classes == kind).nonzero()[:1, 0].tolist():
                text = self.tokenizer.decode([batch.tokens[row].tolist()])[0]
                lines.append(f"  {name}, taken for real at {float(answers[row, 0]):.0%}: {text}")
        return "\n".join(lines)


@torch.no_grad()
def measure(model: Any, batches: Iterable[Tensors], device: torch.device) -> dict[str, float]:
    loss, right, n = 0.0, 0, 0
    for batch in batches:
        assert isinstance(batch, EncoderBatch)
        batch = batch.to(device)
        assert batch.classes is not None
        answers = model.next_sentence(model.pooled(model.hidden(batch)))  # (B, 2)
        loss += float(cross_entropy(answers, batch.classes, "sum"))
        right += int((answers.argmax(-1) == batch.classes).sum())
        n += len(batch)
    return {"loss": loss / n, "accuracy": right / n}
