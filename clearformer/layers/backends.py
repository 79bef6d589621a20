"""Engines behind the attention seam, each with `attend`'s signature and held against it by the tests.

FusedCore        torch's scaled_dot_product_attention          speed
RecordingCore    another core, and the pattern beside it       sight

A core may wrap another, kept as `.core`, and change what it is given. What watches or edits the computation goes inside
all wrappers: `swapped` puts it there in every layer, and takes it out again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from math import sqrt
from threading import Lock
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from clearformer.errors import ConfigError
from clearformer.layers.attention import Core, MultiHeadAttention, pattern
from clearformer.layers.masks import Mask

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class FusedCore:
    """torch's scaled_dot_product_attention, which never writes the T×S pattern to memory.

    A purely causal square mask becomes the flag that lets the flash kernels skip half of the work.
    """

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device) -> Tensor | bool | None:
        if mask is None:
            return None
        return True if mask.is_only_causal and T == S else mask.dense(T, S, device)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        is_causal = mask is True
        if bias is not None:
            bias = bias.to(q.dtype)
            if is_causal:
                mask, is_causal = torch.ones(bias.shape[-2:], dtype=torch.bool, device=q.device).tril(), False
            mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        kernel = without_cudnn if q.is_cuda else F.scaled_dot_product_attention
        return kernel(
            q, k, v, None if is_causal else mask, dropout, is_causal, scale=scale, enable_gqa=q.size(1) != k.size(1)
        )


class CudnnOff:
    """Inside the block cuDNN's attention is off; afterwards the switch is as it was, whichever thread leaves last.

    `sdpa_kernel` does the same, but takes 21 µs instead of 2 around a kernel of 24, and two threads that overlap in it
    can leave the switch off.
    """

    def __init__(self) -> None:
        self.lock, self.n_inside, self.was_on = Lock(), 0, True

    def __enter__(self) -> None:
        with self.lock:
            if self.n_inside == 0:
                self.was_on = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self.n_inside += 1

    def __exit__(self, *raised: object) -> None:
        with self.lock:
            self.n_inside -= 1
            if self.n_inside == 0:
                torch.backends.cuda.enable_cudnn_sdp(self.was_on)


CUDNN_OFF = CudnnOff()  # one for the process, as the switch is


def without_cudnn(*args: Any, **settings: Any) -> Tensor:
    """scaled_dot_product_attention, but never by cuDNN.

    cuDNN plans anew for every shape, 8 ms on the host each time, and batches of text differ in shape: in a training of
    transformer-tiny it took five sixths of the time. The flash and memory-efficient kernels need no plan.
    """
    # The compiler knows sdpa_kernel and no other switch. It chooses while it traces, so that a step pays nothing.
    with sdpa_kernel(KERNELS) if torch.compiler.is_compiling() else CUDNN_OFF:
        return F.scaled_dot_product_attention(*args, **settings)


class RecordingCore:
    """Another core's result, and beside it the pattern, kept on `record`: attention on demand, fused kernel kept.

    It sees the keys that it is given. A wrapper outside it may add some before the real ones, a learned prefix, say:
    the pattern has columns for them, and the real keys, the last columns, get less than the whole of a row.
    """

    def __init__(self, core: Core) -> None:
        if innermost(core) is not core:
            raise ConfigError(
                f"a recorder around {type(core).__name__} would miss what that shows the core inside it",
                "record inside: rewrap(core, RecordingCore(innermost(core)))",
            )
        self.core, self.record = core, list[Tensor]()

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device) -> Any:
        return None if mask is None else (self.core.lower(mask, T, S, device), mask.dense(T, S, device))

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        lowered, dense = (None, None) if mask is None else mask
        self.record.append(pattern(q, k, dense, bias, 1 / sqrt(q.size(-1)) if scale is None else scale).detach())
        return self.core(q, k, v, lowered, bias, scale, dropout)


def innermost(core: Core) -> Core:
    """The core that computes. One that wraps another holds it as `.core`."""
    return innermost(core.core) if hasattr(core, "core") else core


def rewrap(core: Core, inner: Core) -> Core:
    """The wrappers of `core` around `inner` instead of the innermost; they are copied, and `core` stays as it is.

    rewrap(PrefixCore(FusedCore()), RecordingCore(FusedCore()))   PrefixCore(RecordingCore(FusedCore()))
    """
    if not hasattr(core, "core"):
        return inner
    wrapper: Any = copy(core)
    wrapper.core = rewrap(core.core, inner)
    return wrapper


C = TypeVar("C", bound=Core)


@contextmanager
def swapped(model: nn.Module, change: Callable[[Core], C]) -> Iterator[list[C]]:
    """Inside the block every attention layer of the model computes with `change(its innermost core)`, given in order.

    Wrappers stay around them, so that a changed core sees what is really computed with.
    """
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    cores = [layer.core for layer in layers]  # each its own: a tuned layer may have one like no other's
    changed = [change(innermost(core)) for core in cores]
    try:
        for layer, core, inner in zip(layers, cores, changed):
            layer.core = rewrap(core, inner)
        yield changed
    finally:
        for layer, core in zip(layers, cores):
            layer.core = core


def recording(model: nn.Module) -> AbstractContextManager[list[RecordingCore]]:
    """Inside the block every attention layer of the model records, in their order."""
    return swapped(model, RecordingCore)
