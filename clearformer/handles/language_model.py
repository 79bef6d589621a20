"""Text in, more text out: a language model with its tokenizer.

    continuation    p(x_t | x_<t), a token at a time             generate, stream
    score           log p(x) = Σ_t log p(x_t | x_<t)             score: natural log; perplexity = exp(−log p / tokens)

A text begins after BOS, as every document of the training does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.errors import DataError
from clearformer.generation.beam import beam_search
from clearformer.generation.decode import DecodeConfig, Hypothesis, widen, write
from clearformer.generation.sampling import dice, repetition, sampler
from clearformer.handles.translator import by_length, refuse_string
from clearformer.layers.masks import within
from clearformer.text import Tokenizer
from clearformer.text.tokenizer import TextStream

PLAIN = DecodeConfig(beam=1)


@dataclass(frozen=True)
class Continuation:
    """What was written after a prompt. `logprobs` are the model's own, token by token, whatever the temperature."""

    text: str
    tokens: list[int]
    logprob: float
    logprobs: list[float]
    ended: Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class Score:
    """How likely a text is. `tokens` are those that were predicted."""

    text: str
    logprob: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return exp(-self.logprob / max(1, self.tokens))


class LanguageModel:
    """`load` makes one from a run folder."""

    continues = True
    """What is written goes on where the prompt ends, rather than answering it."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        decode: DecodeConfig = PLAIN,
        name: str = "model",
        opening: Sequence[int] | None = None,
        closed: bool = False,
        template: str | None = None,
    ) -> None:
        """`opening`: what stands before every prompt; nothing if empty, the model's BOS before an empty one.

        `closed`: texts are whole, so that a score counts that they end; else they may be pages of a book.
        `template`: how a conversation is written, for `Chat`, if the model was taught to converse.
        """
        self.model: Any = model.eval()
        self.tokenizer, self.decode, self.name = tokenizer, decode, name
        self.opening, self.closed, self.template = list(opening or []), closed, template

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[str],
        n: int = 1,
        stop: Sequence[str] = (),
        seed: int | None = None,
        first: int = 0,
        **settings: Any,
    ) -> list[list[Continuation]]:
        """n continuations of each prompt, likeliest first. Settings are those of [decode], such as temperature=0.8.

        A continuation ends at EOS, before any of the strings in `stop`, or after max_new tokens. Temperature 0 takes
        the likeliest token each time, or searches with a beam. Samples depend on the seed, the prompt and its number,
        which count from `first`, whatever else is in the batch.
        """
        refuse_string(prompts)
        decode = self.settle(settings, n)
        ids = [self.encode(prompt) for prompt in prompts]
        results: list[list[Continuation]] = [[] for _ in ids]
        budget = 65536 if self.device.type == "cuda" else 4096
        for rows in by_length(ids, budget, max(n, decode.beam)):
            batch = [ids[row] for row in rows]
            if decode.temperature == 0 and decode.beam > 1:
                found = self.search(batch, decode)
            else:
                reader = Reader(self.tokenizer, [self.before(prompt) for prompt in batch], n, stop)
                for _ in self.writing(batch, decode, dice(seed, (first + row for row in rows)), reader):
                    pass
                found = reader.found
            for row, some in zip(rows, found):
                results[row] = [self.told(h, ids[row], stop, decode) for h in some[:n]]
        return results

    @torch.inference_mode()
    def stream(self, prompt: str, stop: Sequence[str] = (), seed: int | None = None, **settings: Any) -> Iterator[str]:
        """One continuation, piece by piece as it is written; joined, the pieces are its text."""
        ids = [self.encode(prompt)]
        reader = Reader(self.tokenizer, [self.before(prompt) for prompt in ids], 1, stop, is_watched=True)
        for _ in self.writing(ids, self.settle({**settings, "beam": 1}, 1), dice(seed, [0]), reader):
            if piece := reader.news():
                yield piece
        if piece := reader.rest():
            yield piece

    @torch.inference_mode()
    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """log p of each text, natural log; if `closed`, of the text and that it ends there."""
        refuse_string(texts)
        tok = self.tokenizer
        end = [tok.eos_id] if (self.closed if closed is None else closed) else []
        ids = [[*(self.opening or [tok.bos_id]), *encoded, *end] for encoded in tok.encode(list(texts))]
        for text, encoded in zip(texts, ids):
            self.require_room(len(encoded) - 1, text)
        results = [Score(text, 0.0, 0) for text in texts]
        for rows in by_length(ids, 4096, 1):
            totals, counts = self.logprobs([ids[row] for row in rows])
            for row, total, count in zip(rows, totals.tolist(), counts.tolist()):
                results[row] = Score(texts[row], total, count)
        return results

    def logprobs(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Σ log p of all but the opening tokens of each row, and how many they are: (B,), (B,)."""
        skipped = len(self.opening or [0]) - 1
        T = max(map(len, rows)) - 1
        tokens = torch.full((len(rows), T), self.tokenizer.pad_id)
        labels = torch.full((len(rows), T), IGNORE)
        for i, row in enumerate(rows):
            tokens[i, : len(row) - 1] = torch.tensor(row[:-1])
            labels[i, skipped : len(row) - 1] = torch.tensor(row[1 + skipped :])
        batch = TextBatch(tokens, labels).to(self.device)
        logprobs = widen(self.model(batch)).log_softmax(-1)  # (B, T, V)
        real = batch.labels != IGNORE
        chosen = logprobs.gather(2, batch.labels.clamp(min=0)[:, :, None])[:, :, 0]
        return (chosen * real).sum(1), real.sum(1)

    def settle(self, settings: dict[str, Any], n: int) -> DecodeConfig:
        if {"top_k", "top_p"} & settings.keys() or (n > 1 and "beam" not in settings):
            # Whoever says what to sample from, or wants several, wants to sample.
            settings = {"temperature": self.decode.temperature or 1.0, **settings}
        decode = self.decode.changed(**{"beam": 1, **settings})
        return decode.changed(beam=n) if decode.temperature == 0 and n > decode.beam else decode

    def encode(self, prompt: str) -> list[int]:
        """What the model reads before it writes: never empty, and with room to write at least a token."""
        ids = [*self.opening, *self.tokenizer.encode([prompt])[0]] or [self.tokenizer.bos_id]
        self.require_room(len(ids), prompt)
        return ids

    def require_room(self, n: int, text: str) -> None:
        room = self.model.config.max_length
        if n > room:
            raise DataError(
                f"{text[:40]!r}… has {n:,} tokens, and {self.name} reads at most {room:,}", "give a shorter text"
            )

    def begin(self, prompts: list[list[int]], decode: DecodeConfig) -> tuple[Any, Tensor, Tensor]:
        """The state after all but the last token of each prompt, that token, and how much may be written."""
        lengths = torch.tensor([len(prompt) - 1 for prompt in prompts])  # of what is read at once
        tokens = torch.full((len(prompts), int(lengths.max())), self.tokenizer.pad_id)
        for i, prompt in enumerate(prompts):
            tokens[i, : len(prompt) - 1] = torch.tensor(prompt[:-1], dtype=torch.long)
        mask = within(tokens.size(1), lengths)
        state = self.model.start(tokens.to(self.device), None if mask.all() else mask.to(self.device))
        last = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        limits = torch.tensor([self.limit(prompt, decode) for prompt in prompts], device=self.device)
        return state, last, limits

    def before(self, prompt: list[int]) -> list[int]:
        """What stands before the text that is written, of what was read."""
        return prompt

    def limit(self, prompt: list[int], decode: DecodeConfig) -> int:
        """How many tokens may follow: max_new, or as many as the positions allow; the last need not be read again."""
        return min(decode.max_new, int(self.model.config.max_length) - len(prompt) + 1)

    def writing(
        self, prompts: list[list[int]], decode: DecodeConfig, chance: Sequence[Random], reader: "Reader"
    ) -> Iterator[None]:
        """Write step by step, the reader looking on and saying which branches have come to a stop string."""
        choose = sampler(decode.temperature, chance, decode.top_k, decode.top_p)
        adjust = repetition(decode.repetition_penalty, [self.before(prompt) for prompt in prompts])
        state, last, limits = self.begin(prompts, decode)
        eos = self.tokenizer.eos_id
        steps = write(self.model, state, last, eos, limits, choose, reader.width, decode.min_length, adjust)
        try:
            seen = next(steps)
            while True:
                enough = reader.read(*seen)
                yield
                seen = steps.send(enough)
        except StopIteration as end:
            reader.found = end.value

    def search(self, prompts: list[list[int]], decode: DecodeConfig) -> list[list[Hypothesis]]:
        state, last, limits = self.begin(prompts, decode)
        return beam_search(self.model, state, last, self.tokenizer.eos_id, limits, decode)

    def told(self, found: Hypothesis, prompt: list[int], stop: Sequence[str], decode: DecodeConfig) -> Continuation:
        text = follow(self.tokenizer, self.before(prompt), found.tokens)
        at = cut(text, stop)
        is_full = len(found.tokens) >= self.limit(prompt, decode)
        ended: Literal["eos", "stop", "length"] = "stop" if at < len(text) else "length" if is_full else "eos"
        return Continuation(text[:at], found.tokens, found.logprob, found.logprobs, ended)


def follow(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of tokens that follow others: their first space, which decoding them alone would lose, stays."""
    stream = opened(tokenizer, prompt)
    return "".join(stream.step(token) or "" for token in tokens)


def opened(tokenizer: Tokenizer, prompt: Sequence[int]) -> TextStream:
    """A stream that has read the prompt."""
    stream = tokenizer.stream()
    for token in prompt:
        stream.step(token)
    return stream


def cut(text: str, stop: Sequence[str]) -> int:
    """Where the first of the stop strings begins; the end of the text if there is none."""
    return min((text.find(s) for s in stop if s and s in text), default=len(text))


class Reader:
    """Reads along while texts are written on W branches each, for stop strings and for whoever watches."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        width: int,
        stop: Sequence[str],
        is_watched: bool = False,
    ) -> None:
        self.stop, self.eos, self.width = [s for s in stop if s], tokenizer.eos_id, width
        self.is_needed = bool(self.stop) or is_watched  # else the device need not be waited for at every token
        self.streams = [[opened(tokenizer, prompt) for _ in range(width)] for prompt in prompts]
        self.texts = [[""] * width for _ in prompts]
        self.told = 0  # characters of the first text that were handed out
        self.found: list[list[Hypothesis]] = []

    def read(self, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """Take in a step; which branches have said a stop string, (B, W)."""
        if not self.is_needed:
            return None
        enough = torch.zeros(tokens.shape, dtype=torch.bool)
        for i, (row, branches) in enumerate(zip(rows.tolist(), tokens.tolist())):
            for w, token in enumerate(branches):
                if token != self.eos:
                    self.texts[row][w] += self.streams[row][w].step(token) or ""
                    enough[i, w] = any(s in self.texts[row][w] for s in self.stop)
        return enough.to(tokens.device) if self.stop else None

    def news(self) -> str:
        """What is new in the first text and cannot turn out to be the beginning of a stop string."""
        text = self.texts[0][0]
        begun = max((n for s in self.stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
        return self.hand_out(min(cut(text, self.stop), len(text) - begun))

    def rest(self) -> str:
        """What was held back, now that the text has ended."""
        return self.hand_out(cut(self.texts[0][0], self.stop))

    def hand_out(self, end: int) -> str:
        piece, self.told = self.texts[0][0][self.told : end], max(self.told, end)
        return piece
