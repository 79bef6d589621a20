"""Text generation, token by token: the base class of language models, chat models and encoder–decoders.

x_t ~ p(x_t | prompt, x_<t), sampled; or beam search for the most probable text
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from random import Random
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from clearformer.errors import LengthError
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.engine import Decoder, finished
from clearformer.generation.sampling import generators
from clearformer.handles.batching import by_length
from clearformer.handles.handle import Handle
from clearformer.handles.inputs import one_or_many
from clearformer.layers.masks import within
from clearformer.text import Tokenizer
from clearformer.text.stream import TextStream
from clearformer.wording import count

PLAIN = DecodeConfig(beam=1)


@dataclass(frozen=True)
class Continuation:
    """Text generated after a prompt. `logprobs` has log p of each token, always at temperature 1."""

    text: str
    tokens: list[int]
    logprob: float
    logprobs: list[float]
    ended: Literal["eos", "stop", "length"]


class Writer(Handle):
    """A model that generates text after a prompt. Subclasses encode the prompt."""

    kind: ClassVar[str] = "a text generator"
    verbs: ClassVar[tuple[str, ...]] = ("generate",)
    main: ClassVar[str] = "generate"
    continues = False
    """Whether the generated text continues the prompt rather than answering it."""

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, decode: DecodeConfig = PLAIN, name: str = "model"
    ) -> None:
        super().__init__(model, name)
        self.tokenizer, self.decode = tokenizer, decode
        self.decoder = Decoder(model)

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of a prompt: at least one, and few enough that at least one token can be generated."""
        raise NotImplementedError

    def encode_all(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the ids of several prompts."""
        return [self.encode(prompt) for prompt in prompts]

    @one_or_many
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
        """Return n continuations of each prompt, the most probable first.

        `settings` override [decode], for example temperature=0.8; temperature 0 means greedy or beam search. A
        continuation ends at EOS, before any of the strings in `stop`, or after max_new tokens. A sample depends only
        on the seed, the prompt and its index, not on the rest of the batch; indices start at `first`.
        """
        decode = self.resolve(settings, n)
        ids = self.encode_all(prompts)
        results: list[list[Continuation]] = [[] for _ in ids]
        budget = 65536 if self.device.type == "cuda" else 4096
        for rows in by_length(ids, budget, max(n, decode.beam)):
            batch = [ids[row] for row in rows]
            if decode.temperature == 0 and decode.beam > 1:
                outputs = self.search(batch, decode)
            else:
                watcher = StopWatcher(self.tokenizer, [self.before(prompt) for prompt in batch], n, stop)
                for _ in self.steps(batch, decode, generators(seed, (first + row for row in rows)), watcher):
                    pass
                outputs = watcher.hypotheses
            best = [hypotheses[:n] for hypotheses in outputs]
            self.require_numbers(value for row in best for value in [h.logprob for h in row] or [nan])
            before = [self.before(prompt) for prompt, row in zip(batch, best) for _ in row]
            texts = iter(follow(self.tokenizer, before, [h.tokens for row in best for h in row]))
            for row, hypotheses in zip(rows, best):
                results[row] = [self.continuation(h, next(texts), ids[row], stop, decode) for h in hypotheses]
        return results

    @torch.inference_mode()
    def stream(self, prompt: str, stop: Sequence[str] = (), seed: int | None = None, **settings: Any) -> Iterator[str]:
        """Yield one continuation in chunks as it is generated. Joined together, the chunks are its text."""
        ids = [self.encode(prompt)]
        watcher = StopWatcher(self.tokenizer, [self.before(prompt) for prompt in ids], 1, stop, is_streamed=True)
        for _ in self.steps(ids, self.resolve({**settings, "beam": 1}, 1), generators(seed, [0]), watcher):
            if chunk := watcher.new_text():
                yield chunk
        if chunk := watcher.rest():
            yield chunk

    def resolve(self, settings: dict[str, Any], n: int) -> DecodeConfig:
        """Return the decoding settings for n continuations: [decode], overridden by `settings`."""
        if {"top_k", "top_p"} & settings.keys() or (n > 1 and "beam" not in settings):
            # top_k and top_p only make sense for sampling; several continuations are sampled unless a beam is given.
            settings = {"temperature": self.decode.temperature or 1.0, **settings}
        decode = self.decode.changed(**{"beam": 1, **settings})
        return decode.changed(beam=n) if decode.temperature == 0 and n > decode.beam else decode

    def require_fit(self, n: int, text: str) -> None:
        """Raise an error if n tokens exceed the model's max length."""
        max_length = self.model.config.max_length
        if n > max_length:
            raise LengthError(
                f"{text[:40]!r}… has {count(n, 'token')}, but {self.name} reads at most {max_length:,}",
                "give a shorter text",
            )

    def begin(self, prompts: list[list[int]], decode: DecodeConfig) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Return all but the last token of each prompt with their mask, the last tokens, and the length limits."""
        lengths = torch.tensor([len(prompt) - 1 for prompt in prompts])  # the last token is the input of the first step
        tokens = torch.full((len(prompts), int(lengths.max())), self.tokenizer.pad_id)
        for i, prompt in enumerate(prompts):
            tokens[i, : len(prompt) - 1] = torch.tensor(prompt[:-1], dtype=torch.long)
        mask = within(tokens.size(1), lengths)
        last = torch.tensor([prompt[-1] for prompt in prompts])
        limits = torch.tensor([self.limit(prompt, decode) for prompt in prompts])
        return tokens, None if mask.all() else mask, last, limits

    def before(self, prompt: list[int]) -> list[int]:
        """Return the ids of the prompt that directly precede the generated text; none for an encoder–decoder."""
        return prompt

    def limit(self, prompt: list[int], decode: DecodeConfig) -> int:
        """Return the maximum number of tokens to generate: max_new, or fewer if the model runs out of positions.

        The last token needs no position.
        """
        return min(decode.max_new, int(self.model.config.max_length) - len(prompt) + 1)

    def steps(
        self, prompts: list[list[int]], decode: DecodeConfig, rngs: Sequence[Random], watcher: "StopWatcher"
    ) -> Iterator[None]:
        """Generate step by step. The watcher reads every token and ends sequences that contain a stop string."""
        before = [self.before(prompt) for prompt in prompts]
        tokens, mask, last, limits = self.begin(prompts, decode)
        eos, width, is_watched = self.tokenizer.eos_id, watcher.width, watcher.is_needed
        steps = self.decoder.decode(tokens, mask, last, eos, limits, decode, width, rngs, before, is_watched)
        try:
            new_tokens = next(steps)
            while True:
                stopped = watcher.read(*new_tokens)
                yield
                new_tokens = steps.send(stopped)
        except StopIteration as end:
            watcher.hypotheses = end.value
        finally:
            steps.close()  # which frees the decoder

    def search(self, prompts: list[list[int]], decode: DecodeConfig) -> list[list[Hypothesis]]:
        tokens, mask, last, limits = self.begin(prompts, decode)
        eos = self.tokenizer.eos_id
        return finished(self.decoder.decode(tokens, mask, last, eos, limits, decode, decode.beam))

    def continuation(
        self, hypothesis: Hypothesis, text: str, prompt: list[int], stop: Sequence[str], decode: DecodeConfig
    ) -> Continuation:
        """Convert a hypothesis and its text to a continuation; the text is cut before the first stop string."""
        at = cut(text, stop)
        is_full = len(hypothesis.tokens) >= self.limit(prompt, decode)
        ended: Literal["eos", "stop", "length"] = "stop" if at < len(text) else "length" if is_full else "eos"
        return Continuation(text[:at], hypothesis.tokens, hypothesis.logprob, hypothesis.logprobs, ended)


def follow(tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> list[str]:
    """Decode rows of tokens, each of which follows a prompt.

    This keeps their leading space, which decoding them alone would lose.
    """
    texts = tokenizer.continued(prompts, rows)
    return [
        streamed(tokenizer, prompt, row) if text is None else text for text, prompt, row in zip(texts, prompts, rows)
    ]


def streamed(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """Decode tokens that follow a prompt, one by one."""
    stream = opened(tokenizer, prompt)
    return "".join(stream.step(token) or "" for token in tokens)


def opened(tokenizer: Tokenizer, prompt: Sequence[int]) -> TextStream:
    """Return a text stream that has already decoded the prompt."""
    stream = tokenizer.stream()
    for token in prompt:
        stream.step(token)
    return stream


def cut(text: str, stop: Sequence[str]) -> int:
    """Return the index of the first stop string in the text, or the length of the text if there is none."""
    return min((text.find(s) for s in stop if s and s in text), default=len(text))


class GeneratedText:
    """The text of one sequence as it is generated, in chunks that never include a stop string."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self.text, self.stop = "", [s for s in stop if s]
        self.stream, self.eos = opened(tokenizer, prompt), tokenizer.eos_id
        self.n_streamed = 0  # characters that new_text() has returned

    def read(self, token: int) -> bool:
        """Add the text of a token; returns whether the text contains a stop string now."""
        if token == self.eos:
            return False
        self.text += self.stream.step(token) or ""
        return self.is_stopped

    @property
    def is_stopped(self) -> bool:
        return any(s in self.text for s in self.stop)

    def new_text(self) -> str:
        """Return the rest of the text, except an ending that may be the start of a stop string."""
        text = self.text
        partial = max((n for s in self.stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
        return self.advance(min(cut(text, self.stop), len(text) - partial))

    def rest(self) -> str:
        """Return the ending that `new_text` held back, once generation is complete."""
        return self.advance(cut(self.text, self.stop))

    def advance(self, end: int) -> str:
        """Return the text from the end of the last chunk up to `end`."""
        chunk, self.n_streamed = self.text[self.n_streamed : end], max(self.n_streamed, end)
        return chunk


class StopWatcher:
    """Decodes the tokens of W sequences per prompt as they are generated, to find stop strings and stream the text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        width: int,
        stop: Sequence[str],
        is_streamed: bool = False,
    ) -> None:
        self.width, self.has_stop = width, any(stop)
        self.is_needed = self.has_stop or is_streamed  # if False, no token is read, so that the device can run ahead
        watched = prompts if self.is_needed else ()
        self.texts = [[GeneratedText(tokenizer, prompt, stop) for _ in range(width)] for prompt in watched]
        self.hypotheses: list[list[Hypothesis]] = []

    def read(self, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """Decode the tokens of a step, and return which sequences contain a stop string, (B, W)."""
        if not self.is_needed:
            return None
        stopped = [
            [text.read(token) for text, token in zip(self.texts[row], row_tokens)]
            for row, row_tokens in zip(rows.tolist(), tokens.tolist())
        ]
        return torch.tensor(stopped, device=tokens.device) if self.has_stop else None

    def new_text(self) -> str:
        """Return the new text of the first sequence."""
        return self.texts[0][0].new_text()

    def rest(self) -> str:
        """Return the ending of the first sequence that `new_text` held back, once generation is complete."""
        return self.texts[0][0].rest()
