"""Text generation, a token at a time: the base of language models, chats and encoder–decoders.

p(x_t | x_<t), the prompt before the text; sampled, or searched with a beam
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from clearformer.errors import DataError
from clearformer.generation.beam import beam_search
from clearformer.generation.decode import DecodeConfig, Hypothesis, write
from clearformer.generation.sampling import dice, repetition, sampler
from clearformer.handles.batching import by_length, refuse_string
from clearformer.handles.handle import Handle
from clearformer.layers.masks import within
from clearformer.text import Tokenizer
from clearformer.text.tokenizer import TextStream

PLAIN = DecodeConfig(beam=1)


@dataclass(frozen=True)
class Continuation:
    """Text generated after a prompt. `logprobs` are the model's own, token by token, whatever the temperature."""

    text: str
    tokens: list[int]
    logprob: float
    logprobs: list[float]
    ended: Literal["eos", "stop", "length"]


class Writer(Handle):
    """A model that writes after a prompt; subclasses say how the prompt is encoded."""

    kind: ClassVar[str] = "a text generator"
    verbs: ClassVar[tuple[str, ...]] = ("generate",)
    continues = False
    """The generated text continues the prompt, rather than answering it."""

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, decode: DecodeConfig = PLAIN, name: str = "model"
    ) -> None:
        super().__init__(model, name)
        self.tokenizer, self.decode = tokenizer, decode

    def encode(self, prompt: str) -> list[int]:
        """The tokens that the model reads before it writes: at least one, with room for one more."""
        raise NotImplementedError

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
                branches = self.search(batch, decode)
            else:
                watcher = StopWatcher(self.tokenizer, [self.before(prompt) for prompt in batch], n, stop)
                for _ in self.writing(batch, decode, dice(seed, (first + row for row in rows)), watcher):
                    pass
                branches = watcher.hypotheses
            for row, hypotheses in zip(rows, branches):
                results[row] = [self.continuation(h, ids[row], stop, decode) for h in hypotheses[:n]]
        return results

    @torch.inference_mode()
    def stream(self, prompt: str, stop: Sequence[str] = (), seed: int | None = None, **settings: Any) -> Iterator[str]:
        """One continuation, piece by piece as it is written; joined, the pieces are its text."""
        ids = [self.encode(prompt)]
        watcher = StopWatcher(self.tokenizer, [self.before(prompt) for prompt in ids], 1, stop, is_streamed=True)
        for _ in self.writing(ids, self.settle({**settings, "beam": 1}, 1), dice(seed, [0]), watcher):
            if piece := watcher.new_text():
                yield piece
        if piece := watcher.rest():
            yield piece

    def settle(self, settings: dict[str, Any], n: int) -> DecodeConfig:
        """[decode] with these settings, for n continuations."""
        if {"top_k", "top_p"} & settings.keys() or (n > 1 and "beam" not in settings):
            # Whoever says what to sample from, or wants several, wants to sample.
            settings = {"temperature": self.decode.temperature or 1.0, **settings}
        decode = self.decode.changed(**{"beam": 1, **settings})
        return decode.changed(beam=n) if decode.temperature == 0 and n > decode.beam else decode

    def require_room(self, n: int, text: str) -> None:
        room = self.model.config.max_length
        if n > room:
            raise DataError(
                f"{text[:40]!r}… has {n:,} tokens, and {self.name} reads at most {room:,}", "give a shorter text"
            )

    def begin(self, prompts: list[list[int]], decode: DecodeConfig) -> tuple[Any, Tensor, Tensor]:
        """The state after all but the last token of each prompt, the last token, and the most tokens to generate."""
        lengths = torch.tensor([len(prompt) - 1 for prompt in prompts])  # read at once, without the last token
        tokens = torch.full((len(prompts), int(lengths.max())), self.tokenizer.pad_id)
        for i, prompt in enumerate(prompts):
            tokens[i, : len(prompt) - 1] = torch.tensor(prompt[:-1], dtype=torch.long)
        mask = within(tokens.size(1), lengths)
        state = self.model.start(tokens.to(self.device), None if mask.all() else mask.to(self.device))
        last = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        limits = torch.tensor([self.limit(prompt, decode) for prompt in prompts], device=self.device)
        return state, last, limits

    def before(self, prompt: list[int]) -> list[int]:
        """The part of the encoded prompt that the generated text follows on."""
        return prompt

    def limit(self, prompt: list[int], decode: DecodeConfig) -> int:
        """How many tokens may follow: max_new, or as many as the positions allow; the last need not be read again."""
        return min(decode.max_new, int(self.model.config.max_length) - len(prompt) + 1)

    def writing(
        self, prompts: list[list[int]], decode: DecodeConfig, chance: Sequence[Random], watcher: "StopWatcher"
    ) -> Iterator[None]:
        """Write step by step, while the watcher sees every token and ends the branches that reach a stop string."""
        choose = sampler(decode.temperature, chance, decode.top_k, decode.top_p)
        adjust = repetition(decode.repetition_penalty, [self.before(prompt) for prompt in prompts])
        state, last, limits = self.begin(prompts, decode)
        eos = self.tokenizer.eos_id
        steps = write(self.model, state, last, eos, limits, choose, watcher.width, decode.min_length, adjust)
        try:
            seen = next(steps)
            while True:
                stopped = watcher.read(*seen)
                yield
                seen = steps.send(stopped)
        except StopIteration as end:
            watcher.hypotheses = end.value

    def search(self, prompts: list[list[int]], decode: DecodeConfig) -> list[list[Hypothesis]]:
        state, last, limits = self.begin(prompts, decode)
        return beam_search(self.model, state, last, self.tokenizer.eos_id, limits, decode)

    def continuation(
        self, hypothesis: Hypothesis, prompt: list[int], stop: Sequence[str], decode: DecodeConfig
    ) -> Continuation:
        """The text of a hypothesis, cut before the first stop string."""
        text = follow(self.tokenizer, self.before(prompt), hypothesis.tokens)
        at = cut(text, stop)
        is_full = len(hypothesis.tokens) >= self.limit(prompt, decode)
        ended: Literal["eos", "stop", "length"] = "stop" if at < len(text) else "length" if is_full else "eos"
        return Continuation(text[:at], hypothesis.tokens, hypothesis.logprob, hypothesis.logprobs, ended)


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


class StopWatcher:
    """Decodes the tokens of W branches for each prompt as they are generated: finds stop strings, streams the text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        width: int,
        stop: Sequence[str],
        is_streamed: bool = False,
    ) -> None:
        self.stop, self.eos, self.width = [s for s in stop if s], tokenizer.eos_id, width
        self.is_needed = bool(self.stop) or is_streamed  # else no token is waited for: the device runs ahead
        self.streams = [[opened(tokenizer, prompt) for _ in range(width)] for prompt in prompts]
        self.texts = [[""] * width for _ in prompts]
        self.n_streamed = 0  # characters of the first text that were returned by new_text()
        self.hypotheses: list[list[Hypothesis]] = []

    def read(self, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """Take the tokens of a step; return which branches contain a stop string, (B, W)."""
        if not self.is_needed:
            return None
        stopped = torch.zeros(tokens.shape, dtype=torch.bool)
        for i, (row, branches) in enumerate(zip(rows.tolist(), tokens.tolist())):
            for w, token in enumerate(branches):
                if token != self.eos:
                    self.texts[row][w] += self.streams[row][w].step(token) or ""
                    stopped[i, w] = any(s in self.texts[row][w] for s in self.stop)
        return stopped.to(tokens.device) if self.stop else None

    def new_text(self) -> str:
        """The part of the first text not returned yet, without an end that may be the beginning of a stop string."""
        text = self.texts[0][0]
        begun = max((n for s in self.stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
        return self.advance(min(cut(text, self.stop), len(text) - begun))

    def rest(self) -> str:
        """The part that was held back, once the text has ended."""
        return self.advance(cut(self.texts[0][0], self.stop))

    def advance(self, end: int) -> str:
        """The first text from the last position to `end`."""
        piece, self.n_streamed = self.texts[0][0][self.n_streamed : end], max(self.n_streamed, end)
        return piece
