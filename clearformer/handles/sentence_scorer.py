"""A model trained to distinguish real sentences from sentences with a wrong word (objectives/sentence_score.py)."""

from collections.abc import Sequence

import torch
from torch import nn

from clearformer.data.batch import EncoderBatch
from clearformer.generation.decode import widen
from clearformer.handles.batching import by_length
from clearformer.handles.inputs import one_or_many
from clearformer.handles.scorer import Score, Scorer
from clearformer.handles.text_encoder import TextEmbedder
from clearformer.layers.masks import within
from clearformer.text import Tokenizer

BUDGET = 4096  # tokens per batch


class SentenceScorer(Scorer, TextEmbedder):
    """A sentence scorer, loaded from a run with the sentence-score objective."""

    kind = "a sentence scorer"
    verbs = ("score", "embed", "evaluate", "neighbours")

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, name: str = "model") -> None:
        super().__init__(model, name)
        self.tokenizer = tokenizer

    @one_or_many
    @torch.inference_mode()
    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """Return log p(no word is wrong) of each text. Since this is one prediction per text, `tokens` is 1.

        Only the beginning of a text that exceeds the model's max length is scored. `closed` has no effect.
        """
        ids, _ = self.tokenizer.encode_with_specials(list(texts), max_tokens=self.model.config.max_length)
        results = [Score(text, 0.0, 1) for text in texts]
        for rows in by_length(ids, BUDGET, 1):
            lengths = torch.tensor([len(ids[row]) for row in rows])
            T = int(lengths.max())
            tokens = torch.tensor([ids[row] + [self.tokenizer.pad_id] * (T - len(ids[row])) for row in rows])
            batch = EncoderBatch(tokens, within(T, lengths)).to(self.device)
            logits = self.model.next_sentence(self.model.pooled(self.model.hidden(batch)))  # (B, 2)
            for row, value in zip(rows, widen(logits).log_softmax(-1)[:, 0].tolist()):
                results[row] = Score(texts[row], value, 1)
        return results
