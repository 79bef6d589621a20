"""A masked language model with its tokenizer: BERT and RoBERTa score sentences and fill blanks.

    score    PLL(x) = Σ_t log p(x_t | x without x_t)                  pseudo-log-likelihood, Salazar et al. 2020
    blank    p(w | left, right) = Π_j p(w_j | left, w_<j, right)      tokens from left to right, the rest masked

PLL is not the log-probability of the text: every token is predicted from all the others. It can rank texts of similar
length, and exp(−PLL / tokens) is a pseudo-perplexity. A word of several tokens scores too high, because each token is
easy to guess from the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.data.masked_rows import no_mask, word_starts
from clearformer.errors import ConfigError, DataError, LengthError
from clearformer.generation.decode import NEVER, widen
from clearformer.handles.batching import by_length, read_texts
from clearformer.handles.gaps import WORD, GapFiller
from clearformer.handles.inputs import one_or_many
from clearformer.handles.scorer import Score, Scorer
from clearformer.handles.text_encoder import TextEmbedder
from clearformer.layers.masks import within
from clearformer.text import Tokenizer
from clearformer.wording import count

MAX_MASKS = 3  # maximum number of tokens in a proposed word
PLACEHOLDER = "x"  # encoded in place of the missing word, to find its tokens
BUDGET = 4096  # tokens per batch


class Row(NamedTuple):
    """An encoded text with one or more masked tokens, and the position to predict."""

    tokens: list[int]
    place: int


class MaskedModel(Scorer, GapFiller, TextEmbedder):
    """A masked language model, as returned by `load`."""

    kind = "a masked language model"
    verbs = ("score", "fill", "repair", "follows", "embed", "evaluate", "neighbours", "plot")
    main = "fill"

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, name: str = "model") -> None:
        if tokenizer.mask_id is None:
            raise no_mask()
        super().__init__(model, name)
        self.tokenizer, self.mask_id = tokenizer, tokenizer.mask_id
        self.before, self.after = tokenizer.specials_around()

    @one_or_many
    @torch.inference_mode()
    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """Return the pseudo-log-likelihood of each text (natural logarithm).

        `closed` has no effect: the model always sees the end of the text.
        """
        encoded = self.tokenizer.encode(list(texts))
        rows, targets, text_indices = [], [], []
        for index, (text, ids) in enumerate(zip(texts, encoded)):
            whole = self.with_specials(ids, text)
            for place in range(len(self.before), len(self.before) + len(ids)):
                rows.append(Row([*whole[:place], self.mask_id, *whole[place + 1 :]], place))
                targets.append(whole[place])
                text_indices.append(index)
        totals = [0.0] * len(texts)
        for index, logprob in zip(text_indices, self.logprobs_of(targets, rows)):
            totals[index] += logprob
        return [Score(*row) for row in zip(texts, totals, map(len, encoded))]

    def follows(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[float]:
        """Return the probability that each second text follows its first text, by the next-sentence head.

        Pairs that are longer than the model reads are cut.
        """
        if getattr(self.model, "next_sentence_head", None) is None:
            raise ConfigError(
                f"{self.name} has no next-sentence head",
                "train a BERT with --set objective.next_sentence=true, or import one that has this head",
            )
        limit = self.model.config.max_length
        logits = read_texts(self.compare_pair, self.tokenizer, firsts, seconds, limit, self.device)
        probabilities: list[float] = logits.softmax(-1)[:, 0].tolist()
        return probabilities

    def compare_pair(self, batch: EncoderBatch) -> Tensor:
        logits: Tensor = self.model.next_sentence(self.model.pooled(self.model.hidden(batch)))
        return logits  # (B, 2)

    @torch.inference_mode()
    def weigh(self, left: str, right: str, words: Iterable[str]) -> list[tuple[str, float]]:
        """Return each word with its log-probability between `left` and `right`, the most probable word first."""
        words = list(words)
        rows, targets, word_indices = [], [], []
        for index, word in enumerate(words):
            ids, places = self.locate(left, word, right)
            for j, place in enumerate(places):
                masked = [self.mask_id if k in places[j:] else token for k, token in enumerate(ids)]
                rows.append(Row(masked, place))
                targets.append(ids[place])
                word_indices.append(index)
        totals = [0.0] * len(words)
        for index, logprob in zip(word_indices, self.logprobs_of(targets, rows)):
            totals[index] += logprob
        return sorted(zip(words, totals), key=lambda entry: -entry[1])

    @torch.inference_mode()
    def propose(self, left: str, right: str, n: int = 50) -> list[tuple[str, float]]:
        """Return the n most probable words of up to three tokens between `left` and `right`, with log-probabilities."""
        ids, places = self.locate(left, PLACEHOLDER, right)
        begin, end = places[0], places[-1] + 1
        words: dict[str, float] = {}
        for width in range(1, MAX_MASKS + 1):
            sides = ids[:begin], ids[end:]
            if len(sides[0]) + width + len(sides[1]) > self.model.config.max_length:
                break
            for tokens, logprob in self.search(*sides, width, n):
                word = self.tokenizer.decode([tokens])[0].strip()
                if WORD.fullmatch(word) and logprob > words.get(word, NEVER):
                    words[word] = logprob
        return sorted(words.items(), key=lambda entry: -entry[1])[:n]

    def search(self, left: list[int], right: list[int], width: int, n: int) -> list[tuple[list[int], float]]:
        """Find the n best words of `width` tokens for a blank, by beam search from left to right.

        The first token must begin a word, and the others must continue it.
        """
        hypotheses: list[tuple[list[int], float]] = [([], 0.0)]
        for j in range(width):
            masks = [self.mask_id] * (width - j)
            rows = [Row([*left, *prefix, *masks, *right], len(left) + j) for prefix, _ in hypotheses]
            extended = []
            for indices, logprobs in self.predict_tokens(rows):
                best = logprobs.masked_fill(self.excluded[min(j, 1)], NEVER).topk(min(n, logprobs.size(1)))
                for index, values, tokens in zip(indices, best.values.tolist(), best.indices.tolist()):
                    prefix, total = hypotheses[index]
                    extended += [([*prefix, i], total + p) for p, i in zip(values, tokens) if p > NEVER]
            hypotheses = sorted(extended, key=lambda hypothesis: -hypothesis[1])[:n]
        return hypotheses

    @cached_property
    def excluded(self) -> tuple[Tensor, Tensor]:
        """Two masks (V,): tokens that cannot begin a word, and tokens that cannot continue one."""
        starts = torch.from_numpy(word_starts(self.tokenizer)).to(self.device)
        special = torch.zeros_like(starts)
        special[self.tokenizer.special_ids] = True
        return ~starts | special, starts | special

    def locate(self, left: str, word: str, right: str) -> tuple[list[int], list[int]]:
        """Return the ids of left + word + right with special tokens, and the positions of the word among them."""
        text = left + word + right
        ids, offsets = self.tokenizer.encode_with_offsets(text)
        begin, end = len(left), len(left) + len(word)
        places = [i for i, (a, b) in enumerate(offsets) if a < end and b > begin and text[a:b].strip()]
        if not places:
            raise DataError(f"the vocabulary of {self.name} has no tokens for {word!r}", "give another word")
        return self.with_specials(ids, text), [len(self.before) + i for i in places]

    def with_specials(self, ids: list[int], text: str) -> list[int]:
        """Add the special tokens to the ids of a text. Raises an error if the result exceeds the model's max length."""
        whole, max_length = [*self.before, *ids, *self.after], self.model.config.max_length
        if len(whole) > max_length:
            raise LengthError(
                f"{text[:40]!r}… has {count(len(whole), 'token')}, but {self.name} reads at most {max_length:,}",
                "give a shorter text",
            )
        return whole

    def logprobs_of(self, targets: Sequence[int], rows: Sequence[Row]) -> list[float]:
        """Return log p of the target token of each row, at the position to predict."""
        results = [0.0] * len(rows)
        for indices, logprobs in self.predict_tokens(rows):
            tokens = torch.tensor([targets[index] for index in indices], device=self.device)
            for index, value in zip(indices, logprobs.gather(1, tokens[:, None])[:, 0].tolist()):
                results[index] = value
        return results

    def predict_tokens(self, rows: Sequence[Row]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield row indices in batches, with log p (B, V) of every token at the position to predict in each row."""
        for indices in by_length([row.tokens for row in rows], BUDGET, 1):
            chosen = [rows[index] for index in indices]
            T = max(len(row.tokens) for row in chosen)
            lengths = torch.tensor([len(row.tokens) for row in chosen])
            padded = torch.tensor([row.tokens + [self.tokenizer.pad_id] * (T - len(row.tokens)) for row in chosen])
            batch = EncoderBatch(padded, within(T, lengths)).to(self.device)
            places = torch.tensor([row.place for row in chosen], device=self.device)
            hidden = self.model.hidden(batch)[torch.arange(len(chosen), device=self.device), places]  # (B, D)
            yield indices, widen(self.model.head(hidden)).log_softmax(-1)
