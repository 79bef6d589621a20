"""The masked-language-modelling task of BERT and RoBERTa, evaluated on held-out text.

With objective.next_sentence, as in BERT, each row is a pair of texts; without it, as in RoBERTa, each row is filled
with consecutive whole sentences.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.data.batch import IGNORE, EncoderBatch, Tensors
from clearformer.data.corpora import SentenceCorpora
from clearformer.data.masked_rows import FullSentences, MaskedRows, SentencePairs, no_mask
from clearformer.data.sentences import Sentences, store_sentences
from clearformer.data.store import DocumentStore
from clearformer.errors import CheckpointError, ConfigError
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.metric import ACCURACY, LOSS, PERPLEXITY, Metric, perplexity
from clearformer.objectives.masked_lm import MaskedLM, at_selected, cross_entropy
from clearformer.tables import Tables
from clearformer.tasks import Given
from clearformer.tasks.sampled_text import SampledTextTask
from clearformer.tasks.task import Pretrained, device_of
from clearformer.tasks.text_task import text_encoder
from clearformer.text import Tokenizer

SAMPLE_LENGTH = 48  # tokens shown at each validation
NEXT_SENTENCE = Metric("next_sentence", "Next-sentence accuracy")


class MaskedLMTask(SampledTextTask):
    data = SentenceCorpora
    objective = MaskedLM

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        metrics = LOSS, PERPLEXITY, ACCURACY
        return (*metrics, NEXT_SENTENCE) if recipe.objective.next_sentence else metrics

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        super().check(recipe, where)
        if recipe.objective.next_sentence and not getattr(recipe.model, "next_sentence_head", False):
            raise ConfigError(
                f"{where}: objective.next_sentence = true, but the model has no next-sentence head",
                "set model.next_sentence_head = true, or objective.next_sentence = false",
            )

    def require(self, tokenizer: Tokenizer) -> None:
        if tokenizer.mask_id is None:
            raise no_mask()

    def settle(self) -> Tables:
        """Remove the heads that this objective does not train; otherwise their random weights would be saved."""
        heads = {} if self.recipe.objective.next_sentence else {"next_sentence_head": False, "pooler": False}
        unused = {name: off for name, off in heads.items() if name in type(self.recipe.model).model_fields}
        return super().settle().with_model(**unused)

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_sentences(documents, self.tokenizer, path, self.recipe.data.sentences)

    def make_rows(self, store: DocumentStore) -> MaskedRows:
        objective = self.recipe.objective
        form = SentencePairs if objective.next_sentence else FullSentences
        rows = form(Sentences(store, self.tokenizer.eos_id), self.tokenizer, self.length)
        return MaskedRows(rows, self.tokenizer, objective, objective.whole_word)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Compute the metrics over the whole text, with the same tokens masked each time."""
        return masked_metrics(model, self.fixed(split))

    def sample(self, model: Any, step: int) -> str:
        """Show a row of the validation text; in "‹cart: horse›", "cart" was masked and the model predicts "horse"."""
        batch = next(self.fixed("valid"))
        assert isinstance(batch, EncoderBatch)
        assert batch.labels is not None
        selected = (batch.labels[:, :SAMPLE_LENGTH] != IGNORE).any(1).nonzero()[:, 0].tolist() or [0]
        row = selected[step % len(selected)]
        predictions = model(batch.to(device_of(model)))[row, :SAMPLE_LENGTH].argmax(-1).tolist()
        tokens, labels = batch.tokens[row, :SAMPLE_LENGTH].tolist(), batch.labels[row, :SAMPLE_LENGTH].tolist()
        special = {self.tokenizer.pad_id, self.tokenizer.bos_id, self.tokenizer.eos_id}
        words = []
        for token, label, prediction in zip(tokens, labels, predictions):
            if label != IGNORE:
                words.append("‹{}: {}›".format(*self.tokenizer.pieces([label, prediction])))
            elif token not in special:
                words += self.tokenizer.pieces([token])
        return f"  {' '.join(words)}"

    @classmethod
    def handle(cls, model: Pretrained) -> MaskedModel | TextEncoder:
        """Wrap the model as a MaskedModel, or as a TextEncoder if it cannot predict tokens."""
        if has_word_head(model) and model.tokenizer.mask_id is not None:
            return MaskedModel(model.network, model.tokenizer, model.name)
        return cls.encoder(model, None)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        return text_encoder(model.network, model, unit)

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Evaluate the prediction of masked tokens. Returns loss, perplexity, accuracy and the number of tokens."""
        if not has_word_head(model):
            raise CheckpointError(
                f"{model.name} is a text encoder without a language-model head: it makes no predictions to evaluate",
                f"add a head by fine-tuning with `clearformer finetune --model {model.path} --text FILE`",
            )
        return super().evaluate(model, given, **options)


def has_word_head(model: Pretrained) -> bool:
    return bool(getattr(model.config, "word_head", True))


def masked_metrics(model: Any, batches: Iterable[Tensors]) -> dict[str, Any]:
    """Return loss, perplexity and accuracy over masked tokens, and next-sentence accuracy if batches have classes."""
    device, loss, n_correct, n_tokens, n_correct_rows, n_rows = device_of(model), 0.0, 0, 0, 0, 0
    for batch in batches:
        assert isinstance(batch, EncoderBatch)
        batch = batch.to(device)
        hidden = model.hidden(batch)
        vectors, labels = at_selected(hidden, batch)
        logits = model.head(vectors)
        loss += float(cross_entropy(logits, labels, "sum"))
        n_correct += int((logits.argmax(-1) == labels).sum())
        n_tokens += batch.n_tokens
        if batch.classes is not None:
            n_correct_rows += int((model.next_sentence(model.pooled(hidden)).argmax(-1) == batch.classes).sum())
            n_rows += len(batch)
    mean, accuracy = loss / max(1, n_tokens), n_correct / max(1, n_tokens)
    metrics = {"loss": mean, "perplexity": perplexity(mean), "accuracy": accuracy, "tokens": n_tokens}
    return metrics | ({"next_sentence": n_correct_rows / n_rows} if n_rows else {})
