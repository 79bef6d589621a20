"""Text to a BERT or a RoBERTa, judged by the masked words it recovers in text it has not read.

The objective says which of the two: with `next_sentence`, rows are pairs of texts; without, full sentences.
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
from clearformer.metric import ACCURACY, LOSS, PERPLEXITY, Metric
from clearformer.objectives.masked_lm import MaskedLM, asked_for, cross_entropy
from clearformer.tables import Tables
from clearformer.tasks import Given
from clearformer.tasks.sampled_text import SampledTextTask
from clearformer.tasks.task import Pretrained, device_of
from clearformer.tasks.text_task import perplexity, text_encoder
from clearformer.text import Tokenizer

SHOWN = 48  # tokens of the sample at each validation
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
                f"{where}: objective.next_sentence = true asks a model that has no head for it",
                "set model.next_sentence_head = true, or objective.next_sentence = false",
            )

    def require(self, tokenizer: Tokenizer) -> None:
        if tokenizer.mask_id is None:
            raise no_mask()

    def settle(self) -> Tables:
        """A head that no objective trains is not built: its weights would be saved as if they had learnt."""
        heads = {} if self.recipe.objective.next_sentence else {"next_sentence_head": False, "pooler": False}
        known = {name: off for name, off in heads.items() if name in type(self.recipe.model).model_fields}
        return super().settle().with_model(**known)

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_sentences(documents, self.tokenizer, path, self.recipe.data.sentences)

    def make_rows(self, store: DocumentStore) -> MaskedRows:
        objective = self.recipe.objective
        form = SentencePairs if objective.next_sentence else FullSentences
        rows = form(Sentences(store, self.tokenizer.eos_id), self.tokenizer, self.length)
        return MaskedRows(rows, self.tokenizer, objective, objective.whole_word)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Over the whole text, with the same words masked each time."""
        return score_masked(model, self.fixed(split))

    def sample(self, model: Any, step: int) -> str:
        """A row of the validation text, in which "‹cart: horse›" was "cart", masked, and the model says "horse"."""
        batch = next(self.fixed("valid"))
        assert isinstance(batch, EncoderBatch)
        assert batch.labels is not None
        asked = (batch.labels[:, :SHOWN] != IGNORE).any(1).nonzero()[:, 0].tolist() or [0]
        row = asked[step % len(asked)]
        guesses = model(batch.to(device_of(model)))[row, :SHOWN].argmax(-1).tolist()
        tokens, labels = batch.tokens[row, :SHOWN].tolist(), batch.labels[row, :SHOWN].tolist()
        frame = {self.tokenizer.pad_id, self.tokenizer.bos_id, self.tokenizer.eos_id}
        words = []
        for token, label, guess in zip(tokens, labels, guesses):
            if label != IGNORE:
                words.append("‹{}: {}›".format(*self.tokenizer.pieces([label, guess])))
            elif token not in frame:
                words += self.tokenizer.pieces([token])
        return f"  {' '.join(words)}"

    @classmethod
    def handle(cls, model: Pretrained) -> MaskedModel | TextEncoder:
        """A model that cannot say words, as a sentence encoder, embeds texts."""
        if has_word_head(model) and model.tokenizer.mask_id is not None:
            return MaskedModel(model.network, model.tokenizer, model.name)
        return cls.encoder(model, None)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        return text_encoder(model.network, model, unit)

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """How well masked words are recovered: loss, perplexity, accuracy, tokens."""
        if not has_word_head(model):
            raise CheckpointError(
                f"{model.name} is a text encoder: it predicts no words to evaluate",
                f"with it you can: embed; or train a head for words: finetune --model {model.name} --text FILE",
            )
        return super().evaluate(model, given, **options)


def has_word_head(model: Pretrained) -> bool:
    return bool(getattr(model.config, "word_head", True))


def score_masked(model: Any, batches: Iterable[Tensors]) -> dict[str, Any]:
    """Loss, perplexity and accuracy over masked words, and accuracy of the next sentence where batches ask for it."""
    device, loss, right, n_words, followed, n_rows = device_of(model), 0.0, 0, 0, 0, 0
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
    scores = {"loss": mean, "perplexity": perplexity(mean), "accuracy": right / max(1, n_words), "tokens": n_words}
    return scores | ({"next_sentence": followed / n_rows} if n_rows else {})
