"""The sentence-scoring task: distinguish original sentences from changed ones."""

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
from clearformer.objectives.sentence_score import SentenceScore, sentence_logits
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
        is_classifier = recipe.model.kind == "classifier"
        if is_classifier and recipe.model.pooling == "none":
            raise ConfigError(
                f"{where}: a sentence scorer needs one vector per sentence",
                'set model.pooling = "last", "ends", "mean" or "max"',
            )
        if not is_classifier and not getattr(recipe.model, "next_sentence_head", False):
            raise ConfigError(
                f'{where}: objective.kind = "sentence-score" needs a BERT with a next-sentence head, or a classifier',
                'set model.next_sentence_head = true, or model.kind = "classifier" and model.base.kind = "birnn"',
            )

    def settle(self) -> Tables:
        """Remove the language-model head: this objective predicts no tokens. A classifier gets two classes."""
        model = self.recipe.model
        if model.kind == "classifier":
            least = 0 if self.recipe.origin is None else model.vocab  # a published model may have unused embeddings
            vocab = max(self.tokenizer.vocab_size, least)
            return self.recipe.with_model(base=model.base.changed(vocab=vocab), n_classes=2)
        return super().settle().with_model(word_head=False)

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_sentences(documents, self.tokenizer, path, self.recipe.data.sentences)

    def make_rows(self, store: DocumentStore) -> CorruptedSentences:
        sentences = Sentences(store, self.tokenizer.eos_id)
        return CorruptedSentences(sentences, self.tokenizer, self.length, self.recipe.objective.deleted)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Compute the metrics over all sentences, with the same changes to them each time."""
        return corruption_metrics(model, self.fixed(split))

    def sample(self, model: Any, step: int) -> str:
        """Show the first original and the first changed sentence, with the predicted probability of being original."""
        batch = next(self.fixed("valid"))
        assert isinstance(batch, EncoderBatch)
        assert batch.classes is not None
        probabilities = sentence_logits(model, batch.to(device_of(model))).softmax(-1)
        lines = []
        for kind, name in enumerate(("original", "changed")):
            for row in (batch.classes == kind).nonzero()[:1, 0].tolist():
                text = self.tokenizer.decode([batch.tokens[row].tolist()])[0]
                lines.append(
                    f"  {name} (predicted probability of being original: {float(probabilities[row, 0]):.0%}): {text}"
                )
        return "\n".join(lines)

    @classmethod
    def handle(cls, model: Pretrained) -> SentenceScorer:
        return SentenceScorer(model.network, model.tokenizer, model.name)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        return text_encoder(model.network, model, unit)


def corruption_metrics(model: Any, batches: Iterable[Tensors]) -> dict[str, Any]:
    """Return the loss and the accuracy of classifying sentences as original or changed, and their number."""
    device, loss, n_correct, n = device_of(model), 0.0, 0, 0
    for batch in batches:
        assert isinstance(batch, EncoderBatch)
        batch = batch.to(device)
        assert batch.classes is not None
        logits = sentence_logits(model, batch)  # (B, 2)
        loss += float(cross_entropy(logits, batch.classes, "sum"))
        n_correct += int((logits.argmax(-1) == batch.classes).sum())
        n += len(batch)
    return {"loss": loss / n, "accuracy": n_correct / n, "sentences": n}
