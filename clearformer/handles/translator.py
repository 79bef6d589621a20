"""A translation model with its tokenizers.

Sentences are sorted by length, decoded in batches that fit a token budget, and returned in their original order.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import Batch
from clearformer.data.collate import pad_batch, pad_source
from clearformer.data.pairs import with_task_prefix
from clearformer.data.store import Ragged
from clearformer.errors import CheckpointError, ConfigError, DataError, LengthError
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.engine import Decoder, finished
from clearformer.generation.sampling import generators
from clearformer.generation.scoring import target_logprobs
from clearformer.handles.alignment import Alignment
from clearformer.handles.batching import by_length
from clearformer.handles.handle import Handle
from clearformer.handles.inputs import one_or_many
from clearformer.handles.reply import EncoderDecoderWriter
from clearformer.handles.scorer import Score, most_probable_first
from clearformer.handles.word_vectors import Table, WordVectors
from clearformer.layers.backends import recording
from clearformer.text import Tokenizer
from clearformer.wording import count


@dataclass(frozen=True)
class Translation:
    """One candidate translation. `score` is log p with the length penalty; `logprob` is log p(text | source)."""

    text: str
    score: float
    logprob: float
    tokens: list[int]


class Translator(Handle, WordVectors):
    """A translator, as returned by `load`.

    `prefix` is the task prefix put before every source, as in training (T5: "translate English to French: ").
    """

    kind = "a translator"
    verbs = ("translate", "generate", "score", "evaluate", "neighbours", "plot")
    main = "translate"

    def __init__(
        self,
        model: nn.Module,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decode: DecodeConfig | None = None,
        name: str = "model",
        prefix: str = "",
    ) -> None:
        super().__init__(model, name)
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.decode, self.prefix = decode or DecodeConfig(), prefix
        self.decoder = Decoder(model)
        self.cut: Callable[[str, int, int], None] = warn_of_cut
        """What to do about a text with more tokens than the model reads; its beginning is used unless this raises."""

    @property
    def start_id(self) -> int:
        """The decoder's first token: `model.begins_with` of the recipe, or BOS if a user's model does not have it."""
        return int(getattr(self.target_tokenizer, f"{getattr(self.model, 'begins_with', 'bos')}_id"))

    @one_or_many
    def translate(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """Return the best translation of each text. `settings` override [decode], for example beam=1."""
        return [candidates[0].text for candidates in self.candidates(texts, **settings)]

    @one_or_many
    @torch.inference_mode()
    def candidates(
        self,
        texts: Sequence[str],
        n: int = 1,
        tokens: int | None = None,
        seed: int | None = None,
        first: int = 0,
        **settings: Any,
    ) -> list[list[Translation]]:
        """Return the n best translations of each text, best first; with a temperature, n samples.

        `tokens` limits the size of a batch: source positions times hypotheses. An empty text has n empty translations.
        A sample depends only on the seed, the text and its index, not on the rest of the batch (unless rounding
        decides a very close draw). Indices start at `first`, so that splitting the texts into chunks changes nothing.
        """
        decode = self.resolve(settings, n)
        tokens = tokens or (65536 if self.device.type == "cuda" else 4096)
        ids = self.encode_sources(texts)
        results = [[Translation("", 0.0, 0.0, [])] * n for _ in ids]
        for rows in by_length(ids, tokens, decode.beam if decode.temperature == 0 else n):
            indices = [first + row for row in rows]
            best = [hypotheses[:n] for hypotheses in self.search([ids[row] for row in rows], decode, n, seed, indices)]
            self.require_numbers(value for row in best for value in [h.logprob for h in row] or [nan])
            plain = iter(self.target_tokenizer.decode([h.tokens for hypotheses in best for h in hypotheses]))
            for row, hypotheses in zip(rows, best):
                results[row] = [Translation(next(plain), h.score, h.logprob, h.tokens) for h in hypotheses]
        return results

    def resolve(self, settings: dict[str, Any], n: int) -> DecodeConfig:
        """Return the decoding settings for n candidates: [decode], overridden by `settings`."""
        if {"top_k", "top_p"} & settings.keys():
            # top_k and top_p only make sense for sampling, so they turn it on.
            settings = {"temperature": self.decode.temperature or 1.0, **settings}
        decode = self.decode.changed(**settings) if settings else self.decode
        return decode.changed(beam=n) if decode.temperature == 0 and n > decode.beam else decode

    def stream(self, texts: Iterable[str], chunk: int = 512, **settings: Any) -> Iterator[list[Translation]]:
        """Yield the candidate translations of each text, in order. Texts are decoded `chunk` at a time."""
        rest, first = iter([texts] if isinstance(texts, str) else texts), 0
        while chunk_texts := list(islice(rest, chunk)):
            yield from self.candidates(chunk_texts, first=first, **settings)
            first += chunk

    def search(
        self, sources: list[list[int]], decode: DecodeConfig, n: int, seed: int | None, indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        source, visible, first, limits = self.begin(sources, decode)
        is_sampled, eos = decode.temperature > 0, self.target_tokenizer.eos_id
        rngs, width = (generators(seed, indices), n) if is_sampled else ((), decode.beam)
        return finished(self.decoder.decode(source, visible, first, eos, limits, decode, width, rngs))

    def begin(self, sources: list[list[int]], decode: DecodeConfig) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Return the padded sources with their mask, the first tokens of the decoder, and the length limits."""
        source, mask = pad_source(Ragged.of(sources), self.source_tokenizer.pad_id, self.source_tokenizer.eos_id)
        limits = torch.tensor([self.limit(ids, decode) for ids in sources])
        return source, None if mask.all() else mask, torch.full((len(sources),), self.start_id), limits

    def limit(self, ids: list[int], decode: DecodeConfig) -> int:
        """Return the maximum number of tokens, EOS included, of the translation of a source without EOS."""
        return min(decode.limit(len(ids) + 1), int(self.model.config.max_length))

    @one_or_many
    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Return log p(target | source) of each pair (natural logarithm), by forced decoding."""
        left, right = self.encode_sources(sources), self.encode(self.target_tokenizer, targets)
        if len(left) != len(right):
            raise DataError(
                f"{count(len(left), 'source')} and {count(len(right), 'target')} cannot be paired",
                "give one target for each source",
            )
        pairs = list(zip(left, right))
        results = [0.0] * len(pairs)
        for rows in by_length([source + target for source, target in pairs], 4096, 1, skip_empty=False):
            batch = self.batch([pairs[row] for row in rows])
            for row, value in zip(rows, target_logprobs(self.model, batch).tolist()):
                results[row] = value
        return results

    @one_or_many
    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]:
        """Return the scores of the texts as translations of `source`, the most probable first."""
        return most_probable_first(self.score_each(texts, source, closed))

    def score_each(
        self, texts: Sequence[str], source: str | Sequence[str] | None = None, closed: bool | None = None
    ) -> list[Score]:
        """Return the score of each text as a translation of `source`, or of its source, in the order of `texts`.

        Scores always include EOS; `closed` has no effect.
        """
        if source is None:
            raise ConfigError(
                f"{self.name} is {self.kind}: it scores texts as translations of a source",
                'give the source text: --source "TEXT"; in a file, both columns: --column SOURCE,TARGET',
            )
        logprobs = self.score([source] * len(texts) if isinstance(source, str) else source, texts)
        counts = [len(ids) + 1 for ids in self.target_tokenizer.encode(list(texts))]
        return [Score(*row) for row in zip(texts, logprobs, counts)]

    def writer(self, chat: bool = False) -> EncoderDecoderWriter:
        """Return the model with the interface of a language model: sampling, stop strings and streaming."""
        if chat:
            raise CheckpointError(f"{self.name} is {self.kind}: it has no chat template", "omit --chat")
        writer = EncoderDecoderWriter(self.model, self.target_tokenizer, self.decode, self.name, self.encode_prompt)
        writer.decoder = self.decoder
        return writer

    def encode_prompt(self, prompt: str) -> list[int]:
        """Return the source and EOS, for the encoder, followed by the decoder's first token."""
        return [*self.encode_sources([prompt])[0], self.source_tokenizer.eos_id, self.start_id]

    @torch.inference_mode()
    def align(self, source: str, target: str) -> Alignment:
        """Return the cross-attention of every layer and head while `target`, with EOS, is decoded from `source`."""
        pair = self.encode_sources([source])[0], self.encode(self.target_tokenizer, [target])[0]
        compute = getattr(self.model, "attention_patterns", None)  # a model may compute its own patterns
        patterns = compute(self.batch([pair])) if compute is not None else recorded(self.model, self.batch([pair]))
        if patterns is None:
            raise ConfigError(
                f"{self.name} has no attention, so it cannot align texts", "choose a Transformer or a `bahdanau` model"
            )
        (pattern,) = patterns  # (L, H, T, S)
        return Alignment(
            [*self.source_tokenizer.pieces(pair[0]), "<eos>"],
            [*self.target_tokenizer.pieces(pair[1]), "<eos>"],
            pattern,
        )

    def embedding_tables(self) -> list[Table]:
        """The source and the target embeddings."""
        source, target = self.model.source_embedding.weight.detach(), self.model.target_embedding.weight.detach()
        return [Table("source", source, self.source_tokenizer), Table("target", target, self.target_tokenizer)]

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode(self.source_tokenizer, [with_task_prefix(text, self.prefix) for text in texts])

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text. `cut` is called for texts that, with EOS or BOS, exceed the max length."""
        most = self.model.config.max_length - 1
        encoded = tokenizer.encode(list(texts))
        for text, ids in zip(texts, encoded):
            if len(ids) > most:
                self.cut(text, len(ids), most)
        return [ids[:most] for ids in encoded]

    def batch(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
        sources, targets = (Ragged.of([pair[side] for pair in pairs]) for side in (0, 1))
        tok = self.target_tokenizer
        return pad_batch(sources, targets, tok.pad_id, self.start_id, tok.eos_id).to(self.device)


def warn_of_cut(text: str, n_tokens: int, most: int) -> None:
    warnings.warn(f"{text[:40]!r}… has {count(n_tokens, 'token')} and was cut to the first {most:,}", stacklevel=3)


def refuse_to_cut(text: str, n_tokens: int, most: int) -> None:
    message = f"{text[:40]!r}… has {count(n_tokens, 'token')}, and the model reads at most {most:,}"
    raise LengthError(message, "send a shorter text, or divide it")


def recorded(model: nn.Module, batch: Batch) -> Tensor | None:
    """Record the cross-attention of a forward pass, (B, L, H, T, S). Returns None if the model has no attention.

    A learned prefix has no column, so the rows of a model with a prefix sum to less than 1.
    """
    with recording(getattr(model, "decoder", nn.Module())) as recorders:
        if not recorders:
            return None
        model(batch)
    across = recorders[1::2]  # each block has self-attention, then cross-attention
    S = batch.source.size(1)
    return torch.stack([recorder.record[0][..., -S:] for recorder in across], dim=1)
