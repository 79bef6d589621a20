"""A model that sees both sides of a word, with its tokenizer: BERT and RoBERTa judge sentences and fill gaps.

    score    PLL(x) = Σ_t log p(x_t | x without x_t)                  pseudo-log-likelihood, Salazar et al. 2020
    gap      p(w | left, right) = Π_j p(w_j | left, w_<j, right)      pieces filled from left to right, the rest masked

PLL is no log-probability of the text: each word is judged with all the others in sight, so that it ranks texts of
alike length, and exp(−PLL / tokens) is a pseudo-perplexity. A word of several pieces is helped by them: each is easy
to guess from the others.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.data.masked_rows import no_mask, word_starts
from clearformer.errors import DataError
from clearformer.generation.decode import NEVER, widen
from clearformer.handles.batching import by_length, refuse_string
from clearformer.handles.scorer import Score, Scorer
from clearformer.layers.masks import within
from clearformer.text import Tokenizer

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
PIECES = 3  # masks in a gap, at most
STANDING_IN = "x"  # for the word that is missing, to see where it is
BUDGET = 4096  # tokens computed at once


class Row(NamedTuple):
    """A framed text, one or more of whose places are hidden, and the place that is asked for."""

    tokens: list[int]
    place: int


class MaskedModel(Scorer):
    """`load` makes one from a run folder."""

    kind = "a masked language model"
    verbs = ("score", "fill", "repair", "embed", "evaluate", "plot")

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, name: str = "model") -> None:
        if tokenizer.mask_id is None:
            raise no_mask()
        super().__init__(model, name)
        self.tokenizer, self.mask_id = tokenizer, tokenizer.mask_id
        self.before, self.after = tokenizer.frame()

    @torch.inference_mode()
    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """The pseudo-log-likelihood of each text, natural log. Its end is always in sight: `closed` changes nothing."""
        refuse_string(texts)
        encoded = self.tokenizer.encode(list(texts))
        rows, wanted, owners = [], [], []
        for owner, (text, ids) in enumerate(zip(texts, encoded)):
            whole = self.framed(ids, text)
            for place in range(len(self.before), len(self.before) + len(ids)):
                rows.append(Row([*whole[:place], self.mask_id, *whole[place + 1 :]], place))
                wanted.append(whole[place])
                owners.append(owner)
        totals = [0.0] * len(texts)
        for owner, logprob in zip(owners, self.ask(rows, wanted)):
            totals[owner] += logprob
        return [Score(*row) for row in zip(texts, totals, map(len, encoded))]

    @torch.inference_mode()
    def weigh(self, left: str, right: str, words: Iterable[str]) -> list[tuple[str, float]]:
        """Each word with its log-probability between left and right, the likeliest first."""
        words = list(words)
        rows, wanted, owners = [], [], []
        for owner, word in enumerate(words):
            ids, places = self.locate(left, word, right)
            for j, place in enumerate(places):
                hidden = [self.mask_id if k in places[j:] else token for k, token in enumerate(ids)]
                rows.append(Row(hidden, place))
                wanted.append(ids[place])
                owners.append(owner)
        totals = [0.0] * len(words)
        for owner, logprob in zip(owners, self.ask(rows, wanted)):
            totals[owner] += logprob
        return sorted(zip(words, totals), key=lambda entry: -entry[1])

    @torch.inference_mode()
    def propose(self, left: str, right: str, n: int = 50) -> list[tuple[str, float]]:
        """The likeliest n words between left and right, of one piece, two or three, with their log-probabilities."""
        ids, places = self.locate(left, STANDING_IN, right)
        begin, end = places[0], places[-1] + 1
        words: dict[str, float] = {}
        for width in range(1, PIECES + 1):
            frame = ids[:begin], ids[end:]
            if len(frame[0]) + width + len(frame[1]) > self.model.config.max_length:
                break
            for pieces, logprob in self.search(*frame, width, n):
                word = self.tokenizer.decode([pieces])[0].strip()
                if WORD.fullmatch(word) and logprob > words.get(word, NEVER):
                    words[word] = logprob
        return sorted(words.items(), key=lambda entry: -entry[1])[:n]

    def search(self, left: list[int], right: list[int], width: int, n: int) -> list[tuple[list[int], float]]:
        """The best n words of `width` pieces in a gap, found from left to right: the first begins it, others go on."""
        branches: list[tuple[list[int], float]] = [([], 0.0)]
        for j in range(width):
            rows = [Row([*left, *said, *[self.mask_id] * (width - j), *right], len(left) + j) for said, _ in branches]
            grown = []
            for numbers, logprobs in self.answers(rows):
                best = logprobs.masked_fill(self.barred[min(j, 1)], NEVER).topk(min(n, logprobs.size(1)))
                for number, values, tokens in zip(numbers, best.values.tolist(), best.indices.tolist()):
                    said, total = branches[number]
                    grown += [([*said, i], total + p) for p, i in zip(values, tokens) if p > NEVER]
            branches = sorted(grown, key=lambda branch: -branch[1])[:n]
        return branches

    @cached_property
    def barred(self) -> tuple[Tensor, Tensor]:
        """(V,) each: what cannot begin a word, and what cannot go on with one."""
        starts = torch.from_numpy(word_starts(self.tokenizer)).to(self.device)
        special = torch.zeros_like(starts)
        special[self.tokenizer.special_ids] = True
        return ~starts | special, starts | special

    def locate(self, left: str, word: str, right: str) -> tuple[list[int], list[int]]:
        """The framed text, and the places of the word in it."""
        text = left + word + right
        ids, offsets = self.tokenizer.encode_with_offsets(text)
        begin, end = len(left), len(left) + len(word)
        places = [i for i, (a, b) in enumerate(offsets) if a < end and b > begin and text[a:b].strip()]
        if not places:
            raise DataError(f"the vocabulary cannot spell {word!r}", "give another word")
        return self.framed(ids, text), [len(self.before) + i for i in places]

    def framed(self, ids: list[int], text: str) -> list[int]:
        whole, room = [*self.before, *ids, *self.after], self.model.config.max_length
        if len(whole) > room:
            raise DataError(
                f"{text[:40]!r}… has {len(whole):,} tokens, and {self.name} reads at most {room:,}",
                "give a shorter text",
            )
        return whole

    def ask(self, rows: Sequence[Row], wanted: Sequence[int]) -> list[float]:
        """log p of a token at the place of each row."""
        results = [0.0] * len(rows)
        for numbers, logprobs in self.answers(rows):
            tokens = torch.tensor([wanted[number] for number in numbers], device=self.device)
            for number, value in zip(numbers, logprobs.gather(1, tokens[:, None])[:, 0].tolist()):
                results[number] = value
        return results

    def answers(self, rows: Sequence[Row]) -> Iterator[tuple[list[int], Tensor]]:
        """log p (B, V) of every token at the place of each row, some rows at a time, with their numbers."""
        for numbers in by_length([row.tokens for row in rows], BUDGET, 1):
            some = [rows[number] for number in numbers]
            T = max(len(row.tokens) for row in some)
            lengths = torch.tensor([len(row.tokens) for row in some])
            padded = torch.tensor([row.tokens + [self.tokenizer.pad_id] * (T - len(row.tokens)) for row in some])
            batch = EncoderBatch(padded, within(T, lengths)).to(self.device)
            places = torch.tensor([row.place for row in some], device=self.device)
            asked = self.model.hidden(batch)[torch.arange(len(some), device=self.device), places]  # (B, D)
            yield numbers, widen(self.model.head(asked)).log_softmax(-1)
