"""Sentences to a scorer of sentences, judged by how well it tells unread ones from changed ones."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.data.batch import EncoderBatch, Tensors
from clearformer.data.corpora import SentenceCorpora
from clearformer.data.corrupted_sentences import CorruptedSentences
from clearformer.data.sentences import Sentences, store_sentences
from clearformer.data.store import DocumentStore
from clearformer.errors import ConfigError
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.handles.text_encoder import TextEncoder
from clearformer.metric import ACCURACY, LOSS, Metric
from clearformer.objectives.masked_lm import cross_entropy
from clearformer.objectives.sentence_score import SentenceScore
from clearformer.tables import Tables
from clearformer.tasks.sampled_text import SampledTextTask
from clearformer.tasks.task import Pretrained, device_of
from clearformer.tasks.text_task import text_encoder


class SentenceScoreTask(SampledTextTask):
    data = SentenceCorpora
    objective = SentenceScore
    unit = "examples"

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return LOSS, ACCURACY

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        super().check(recipe, where)
        if not getattr(recipe.model, "next_sentence_head", False):
            raise ConfigError(
                f'{where}: objective.kind = "sentence-score" asks a model that has no head for it',
                'set model.kind = "bert" and model.next_sentence_head = true',
            )

    def settle(self) -> Tables:
        """Without the head for words, which are not asked for."""
        return super().settle().with_model(word_head=False)

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_sentences(documents, self.tokenizer, path, self.recipe.data.sentences)

    def make_rows(self, store: DocumentStore) -> CorruptedSentences:
        sentences = Sentences(store, self.tokenizer.eos_id)
        return CorruptedSentences(sentences, self.tokenizer, self.length, self.recipe.objective.deleted)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Over all sentences, with the same changes each time."""
        return score_answers(model, self.fixed(split))

    def sample(self, model: Any, step: int) -> str:
        """The first sentence that was left as it was, and the first that was changed."""
        batch = next(self.fixed("valid"))
        assert isinstance(batch, EncoderBatch)
        assert batch.classes is not None
        answers = model.next_sentence(model.pooled(model.hidden(batch.to(device_of(model))))).softmax(-1)
        lines = []
        for kind, name in enumerate(("real", "changed")):
            for row in (batch.classes == kind).nonzero()[:1, 0].tolist():
                text = self.tokenizer.decode([batch.tokens[row].tolist()])[0]
                lines.append(f"  {name}, taken for real at {float(answers[row, 0]):.0%}: {text}")
        return "\n".join(lines)

    @classmethod
    def handle(cls, model: Pretrained) -> SentenceScorer:
        return SentenceScorer(model.network, model.tokenizer, model.name)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        return text_encoder(model.network, model, unit)


def score_answers(model: Any, batches: Iterable[Tensors]) -> dict[str, Any]:
    """Loss and accuracy of the answers: real or changed."""
    device, loss, right, n = device_of(model), 0.0, 0, 0
    for batch in batches:
        assert isinstance(batch, EncoderBatch)
        batch = batch.to(device)
        assert batch.classes is not None
        answers = model.next_sentence(model.pooled(model.hidden(batch)))  # (B, 2)
        loss += float(cross_entropy(answers, batch.classes, "sum"))
        right += int((answers.argmax(-1) == batch.classes).sum())
        n += len(batch)
    return {"loss": loss / n, "accuracy": right / n, "sentences": n}
