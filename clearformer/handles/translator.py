"""Text in, text out: a translation model with its tokenizers.

Sentences are sorted by length, decoded in batches of a token budget, and returned in the order they came.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import Batch
from clearformer.data.collate import pad_batch, pad_source
from clearformer.data.pairs import posed
from clearformer.data.store import Ragged
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.generation.beam import beam_search
from clearformer.generation.decode import DecodeConfig, Hypothesis, sample
from clearformer.generation.sampling import dice, sampler
from clearformer.generation.scoring import target_logprobs
from clearformer.handles.alignment import Alignment, record_self_attention
from clearformer.handles.batching import by_length, refuse_string
from clearformer.handles.handle import Handle
from clearformer.handles.reply import EncoderDecoderWriter
from clearformer.handles.scorer import Score, likeliest_first
from clearformer.layers.backends import recording
from clearformer.text import Tokenizer


@dataclass(frozen=True)
class Translation:
    """One candidate: its text, what the search ranked it by, and log p(text | source)."""

    text: str
    score: float
    logprob: float
    tokens: list[int]


class Translator(Handle):
    """`load` makes one from a run folder. `prefix` names the task before every source, as the training did."""

    kind = "a translator"
    verbs = ("translate", "generate", "score", "evaluate", "neighbours", "plot")

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

    @property
    def start_id(self) -> int:
        """What the decoder reads first: BOS, or, if it is a T5, padding. A model of the user's need not say."""
        return int(getattr(self.target_tokenizer, f"{getattr(self.model, 'begins_with', 'bos')}_id"))

    def translate(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """The best translation of each text. Settings are those of [decode], such as beam=1."""
        return [candidates[0].text for candidates in self.candidates(texts, **settings)]

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
        """The n best translations (or n samples, with a temperature) of each text, best first.

        `tokens` bounds a batch: source positions times branches. A blank text is translated by n blanks.
        Samples depend on the seed, the text and its number alone, whatever else is in the batch (but for a draw so
        close that rounding decides); numbers count from `first`, so that a stream is sampled alike however it is cut.
        """
        if {"top_k", "top_p"} & settings.keys():
            # Whoever says what to sample from wants to sample.
            settings = {"temperature": self.decode.temperature or 1.0, **settings}
        decode = self.decode.changed(**settings) if settings else self.decode
        if decode.temperature == 0 and n > decode.beam:
            decode = decode.changed(beam=n)
        tokens = tokens or (65536 if self.device.type == "cuda" else 4096)
        ids = self.encode_sources(texts)
        results = [[Translation("", 0.0, 0.0, [])] * n for _ in ids]
        for rows in by_length(ids, tokens, decode.beam if decode.temperature == 0 else n):
            numbers = [first + row for row in rows]
            for row, hypotheses in zip(rows, self.search([ids[row] for row in rows], decode, n, seed, numbers)):
                plain = self.target_tokenizer.decode([h.tokens for h in hypotheses[:n]])
                results[row] = [Translation(t, h.score, h.logprob, h.tokens) for t, h in zip(plain, hypotheses)]
        return results

    def stream(self, texts: Iterable[str], chunk: int = 512, **settings: Any) -> Iterator[list[Translation]]:
        """Candidates for each of a stream of texts, in order, `chunk` texts at a time."""
        refuse_string(texts)
        rest = iter(texts)
        for first in count(0, chunk):
            waiting = list(islice(rest, chunk))
            if not waiting:
                return
            yield from self.candidates(waiting, first=first, **settings)

    def search(
        self, sources: list[list[int]], decode: DecodeConfig, n: int, seed: int | None, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        pad, eos = self.source_tokenizer.pad_id, self.source_tokenizer.eos_id
        source, mask = (x.to(self.device) for x in pad_source(Ragged.of(sources), pad, eos))
        limits = decode.limits(mask.sum(1)).clamp(max=self.model.config.max_length)
        first = torch.full((len(sources),), self.start_id, device=self.device)
        state = self.model.start(source, None if mask.all() else mask)
        eos = self.target_tokenizer.eos_id
        if decode.temperature > 0:
            choose = sampler(decode.temperature, dice(seed, numbers), decode.top_k, decode.top_p)
            return sample(self.model, state, first, eos, limits, choose, n, decode.min_length)
        return beam_search(self.model, state, first, eos, limits, decode)

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """log p(target | source) of each given pair, natural log, by forced decoding."""
        left, right = self.encode_sources(sources), self.encode(self.target_tokenizer, targets)
        if len(left) != len(right):
            counts = f"there are {len(left)} and {len(right)}"
            raise DataError(f"sources and targets come in pairs, but {counts}", "give one target for each source")
        pairs = list(zip(left, right))
        results = [0.0] * len(pairs)
        for rows in by_length([source + target for source, target in pairs], 4096, 1, skip_empty=False):
            batch = self.batch([pairs[row] for row in rows])
            for row, value in zip(rows, target_logprobs(self.model, batch).tolist()):
                results[row] = value
        return results

    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]:
        """The scores of the texts as translations of `source`, the likeliest first. EOS counts, closed or not."""
        if source is None:
            raise ConfigError(
                f"{self.name} is {self.kind}: it scores texts as translations of a source", "give it with --source"
            )
        logprobs = self.score([source] * len(texts), texts)
        counts = [len(ids) + 1 for ids in self.target_tokenizer.encode(list(texts))]
        return likeliest_first(Score(*row) for row in zip(texts, logprobs, counts))

    def writer(self, chat: bool = False) -> EncoderDecoderWriter:
        """The model with a language model's ways to generate: sampling, stop strings, streaming."""
        if chat:
            raise CheckpointError(f"{self.name} is {self.kind}: it has no chat template", "leave --chat out")
        return EncoderDecoderWriter(self.model, self.target_tokenizer, self.decode, self.name, self.encode_prompt)

    def encode_prompt(self, prompt: str) -> list[int]:
        """The source with its EOS, for the encoder, and the decoder's first token."""
        return [*self.encode_sources([prompt])[0], self.source_tokenizer.eos_id, self.start_id]

    @torch.inference_mode()
    def align(self, source: str, target: str) -> Alignment:
        """Cross-attention of every layer and head while `target` is decoded from `source`; both end in EOS."""
        pair = self.encode_sources([source])[0], self.encode(self.target_tokenizer, [target])[0]
        looks = getattr(self.model, "looks", None)  # a model may compute its own
        patterns = looks(self.batch([pair])) if looks is not None else recorded(self.model, self.batch([pair]))
        if patterns is None:
            raise ConfigError(
                f"{self.name} does not attend, so nothing can be aligned", "a Transformer does, and bahdanau"
            )
        (pattern,) = patterns  # (L, H, T, S)
        return Alignment(
            [*self.source_tokenizer.pieces(pair[0]), "<eos>"],
            [*self.target_tokenizer.pieces(pair[1]), "<eos>"],
            pattern,
        )

    def self_attention(self, text: str) -> Alignment:
        """Self-attention of the encoder over a source text and its EOS."""
        ids = [*self.encode_sources([text])[0], self.source_tokenizer.eos_id]
        tokens = torch.tensor([ids], device=self.device)
        return record_self_attention(
            getattr(self.model, "encoder", nn.Module()),
            lambda: self.model.start(tokens, None),
            self.source_tokenizer.pieces(ids),
            self.name,
        )

    def neighbours(self, word: str, n: int = 10) -> list[tuple[str, float]]:
        """The pieces whose source embeddings point most nearly the same way as the word's, by cosine."""
        tok = self.source_tokenizer
        ids = tok.encode([word])[0]
        if not ids or tok.unk_id in ids:
            raise DataError(f"`{word}` is not in the vocabulary", "give a word of the language it translates from")
        table = torch.nn.functional.normalize(self.model.source_embedding.weight.detach().float(), dim=1)  # (V, D)
        query = torch.nn.functional.normalize(table[ids].mean(0), dim=0)
        likeness = table @ query
        excluded = {*ids, tok.pad_id, tok.bos_id, tok.eos_id, tok.unk_id} - {None}
        likeness[list(excluded)] = -2.0  # below any cosine
        best = likeness.topk(min(n, len(likeness) - len(excluded)))
        return list(zip(tok.pieces(best.indices.tolist()), best.values.tolist()))

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        refuse_string(texts)
        return self.encode(self.source_tokenizer, [posed(text, self.prefix) for text in texts])

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, cut to what the model's positions can hold beside EOS or BOS; a cut is warned of."""
        refuse_string(texts)
        room = self.model.config.max_length - 1
        encoded = tokenizer.encode(list(texts))
        for text, ids in zip(texts, encoded):
            if len(ids) > room:
                warnings.warn(f"cut to {room:,} of its {len(ids):,} tokens: {text[:40]!r}…", stacklevel=2)
        return [ids[:room] for ids in encoded]

    def batch(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
        sources, targets = (Ragged.of([pair[side] for pair in pairs]) for side in (0, 1))
        tok = self.target_tokenizer
        return pad_batch(sources, targets, tok.pad_id, self.start_id, tok.eos_id).to(self.device)


def recorded(model: nn.Module, batch: Batch) -> Tensor | None:
    """The cross-attention of a Transformer during one forward pass, (B, L, H, T, S); None if it has no attention.

    A learned prefix has no column: rows sum to what it leaves to the source.
    """
    with recording(getattr(model, "decoder", nn.Module())) as recorders:
        if not recorders:
            return None
        model(batch)
    across = recorders[1::2]  # each block attends to itself first
    S = batch.source.size(1)
    return torch.stack([recorder.record[0][..., -S:] for recorder in across], dim=1)
