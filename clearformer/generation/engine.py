"""Decoding with the fastest decoder that a model and its device allow.

    torch       the plain decoder: beam.py, decode.py                    any model with the step protocol
    static      steps of fixed shape, recorded as CUDA graphs: static.py Transformers and GPTs on CUDA
    compiled    the same steps as machine code: compiled.py              the same models, one sentence on the CPU

`auto` compiles nothing: it uses compiled steps only if the cache has them (engine_cache.py). All decoders give
the same tokens and, up to rounding, the same scores.
"""

from collections.abc import Callable, Generator, Sequence
from random import Random
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearformer.generation.beam import beam_search
from clearformer.generation.compiled import Compiler, can_compile
from clearformer.generation.decode import DecodeConfig, Hypothesis, sample_steps
from clearformer.generation.engine_cache import cache_folder
from clearformer.generation.sampling import repetition, sampler
from clearformer.generation.static import Recorder, StaticDecoder, modules
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.backends import FusedCore, innermost
from clearformer.layers.embeddings import Unembedding

Engine = Literal["auto", "torch", "compiled"]
Steps = Generator[tuple[Tensor, Tensor], Tensor | None, list[list[Hypothesis]]]


class Decoder:
    """The decoder of one model. It keeps recorded steps, so it belongs to the handle of the model."""

    def __init__(
        self, model: nn.Module, engine: Engine = "auto", announce: Callable[[str], None] = lambda text: None
    ) -> None:
        """`announce` receives a line before and after steps are compiled, which takes about a minute."""
        self.model, self.engine, self.announce = model, engine, announce
        self.static: StaticDecoder | None = None
        self.compiler: Compiler | None = None
        self.lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Decoder, (self.model, self.engine, self.announce)  # a copy prepares its own steps

    def decode(
        self,
        source: Tensor,
        mask: Tensor | None,
        first: Tensor,
        eos: int,
        limits: Tensor,
        config: DecodeConfig,
        width: int,
        rngs: Sequence[Random] = (),
        prompts: Sequence[Sequence[int]] = (),
        is_watched: bool = False,
    ) -> Steps:
        """Decode B sentences, and return the hypotheses of each, best first.

        source and mask (B, S) are the arguments of `model.start`; first (B,) holds the first input tokens, and limits
        (B,) the maximum output lengths, EOS included. `width` is the number of hypotheses: of beam search for
        temperature 0, otherwise of samples, drawn by `rngs`. `prompts` are tokens for the repetition penalty.

        If `is_watched`, every step yields the indices of the remaining sentences, (B,), and their new tokens, (B, W),
        and the caller may send back a mask (B, W) of sequences to end.
        """
        static = self.static_decoder() or self.compiled_decoder(len(first), eos, config, width)
        # Prepared steps use one set of tensors. A second thread decodes plainly in the meantime.
        if static is not None and static.can_hold(source) and self.lock.acquire(blocking=False):
            try:
                return (
                    yield from static.decode(source, mask, first, eos, limits, config, width, rngs, prompts, is_watched)
                )
            except torch.OutOfMemoryError:  # the plain decoder needs less: its caches grow with the text
                if is_watched:
                    raise
                static.forget()
            finally:
                self.lock.release()
        return (yield from plain(self.model, source, mask, first, eos, limits, config, width, rngs, prompts))

    def static_decoder(self) -> StaticDecoder | None:
        """Return the static decoder, or None if the model, its device or the setting do not allow one."""
        if self.engine != "auto" or not can_record(self.model):
            return None
        if self.static is None:
            align_head(self.model)
            self.static = StaticDecoder(self.model, Recorder())
        return self.static

    def compiled_decoder(self, n: int, eos: int, config: DecodeConfig, width: int) -> StaticDecoder | None:
        """Return a decoder with compiled steps, for the search in one sentence, or None if there is none."""
        if self.engine == "torch" or n > 1 or config.temperature > 0 or not can_compile(self.model):
            return None
        is_built = self.engine == "compiled"
        if not is_built and not cache_folder().is_dir():
            return None
        if self.compiler is None:
            self.compiler = Compiler(self.model, self.announce)
        return self.compiler.decoder(eos, config, width, is_built)


def plain(
    model: Any,
    source: Tensor,
    mask: Tensor | None,
    first: Tensor,
    eos: int,
    limits: Tensor,
    config: DecodeConfig,
    width: int,
    rngs: Sequence[Random] = (),
    prompts: Sequence[Sequence[int]] = (),
) -> Steps:
    """Decode with the plain decoder; the arguments are the same as in `Decoder.decode`."""
    device = next(model.parameters()).device
    source, first, limits = source.to(device), first.to(device), limits.to(device)
    state = model.start(source, None if mask is None else mask.to(device))
    if config.temperature == 0 and not rngs:
        return beam_search(model, state, first, eos, limits, config.changed(beam=width))
    choose = sampler(config.temperature, rngs, config.top_k, config.top_p)
    adjust = repetition(config.repetition_penalty, prompts)
    return (yield from sample_steps(model, state, first, eos, limits, choose, width, config.min_length, adjust))


def finished(steps: Steps) -> list[list[Hypothesis]]:
    """Run all steps, and return the hypotheses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hypotheses: list[list[Hypothesis]] = end.value
            return hypotheses


def align_head(model: nn.Module) -> None:
    """Prepare the product with the vocabulary for recorded steps."""
    if isinstance(head := getattr(model, "unembedding", None), Unembedding):
        head.align()


def can_record(model: nn.Module) -> bool:
    """Whether the decoding steps of a model can be recorded: on CUDA, with fused attention, and observed by no hook."""
    parameter = next(model.parameters())
    if not parameter.is_cuda or model.training or not getattr(model, "is_recordable", False):
        return False
    layers = 0
    for module in modules(model):
        if module._forward_hooks or module._forward_pre_hooks:
            return False
        if isinstance(module, MultiHeadAttention):
            if type(innermost(module.core)) is not FusedCore:
                return False
            layers += 1
    return layers > 0
