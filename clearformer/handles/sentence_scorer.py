"""A model trained to distinguish real sentences from sentences with a wrong word (objectives/sentence_score.py).

It also fills blanks: of all sentences that candidates make, it chooses the one that is most probably right. It has no
head that predicts words, so without candidates it tries the words of its vocabulary.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import torch
from torch import nn

from clearformer.data.batch import EncoderBatch
from clearformer.data.masked_rows import word_starts
from clearformer.generation.decode import widen
from clearformer.handles.batching import by_length
from clearformer.handles.gaps import WORD, GapFiller
from clearformer.handles.inputs import one_or_many
from clearformer.handles.scorer import Score, Scorer
from clearformer.handles.text_encoder import TextEmbedder
from clearformer.layers.masks import within
from clearformer.objectives.sentence_score import sentence_logits
from clearformer.text import Tokenizer

BUDGET = 4096  # tokens per batch
TRIED = 500  # words of the vocabulary that are tried in a blank; vocabularies begin with frequent ones


class SentenceScorer(Scorer, GapFiller, TextEmbedder):
    """A sentence scorer, loaded from a run with the sentence-score objective."""

    kind = "a sentence scorer"
    verbs = ("score", "fill", "repair", "embed", "evaluate", "neighbours")

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
            for row, value in zip(rows, widen(sentence_logits(self.model, batch)).log_softmax(-1)[:, 0].tolist()):
                results[row] = Score(texts[row], value, 1)
        return results

    def weigh(self, left: str, right: str, words: Iterable[str]) -> list[tuple[str, float]]:
        """Return each word with the score of the sentence it makes between `left` and `right`, the best first."""
        words = list(words)
        scores = self.score([left + word + right for word in words])
        return sorted(((word, score.logprob) for word, score in zip(words, scores)), key=lambda entry: -entry[1])

    def propose(self, left: str, right: str, n: int = 50) -> list[tuple[str, float]]:
        """Return the n words of the vocabulary that make the best sentences between `left` and `right`."""
        return self.weigh(left, right, self.words)[:n]

    @cached_property
    def words(self) -> list[str]:
        """The first words of the vocabulary that are a single token."""
        starts = word_starts(self.tokenizer)
        starts[self.tokenizer.special_ids] = False
        texts = (text.strip() for text in self.tokenizer.decode([[i] for i in starts.nonzero()[0].tolist()]))
        return [text for text in dict.fromkeys(texts) if WORD.fullmatch(text)][:TRIED]
