"""Attention cores. Each has the signature of `attend`, and the tests compare its results with `attend`.

FusedCore        torch's scaled_dot_product_attention          fast; for short texts and steps, kernels that are faster
RecordingCore    wraps another core                            records the attention pattern

A core may wrap another core, its `.core`, and change the inputs of that core. Cores that observe or edit the
computation belong inside all wrappers: `swapped` inserts them there in every layer, and removes them again.
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
from clearformer.layers import short_cuda
from clearformer.layers.attention import Core, MultiHeadAttention, pattern
from clearformer.layers.few_queries import attend_few, has_few_queries
from clearformer.layers.fixed_shapes import FIXED_SHAPES
from clearformer.layers.masks import Mask
from clearformer.layers.short_attention import MAX_POSITIONS, attend_short, is_short
from clearformer.toolchain import can_compile

MAX_QUERIES = 16  # of the Triton kernel: hypotheses times query heads per key head
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class FusedCore:
    """torch's scaled_dot_product_attention, which never writes the T×S pattern to memory.

    A square, purely causal mask is passed as `is_causal=True`, with which flash kernels skip half of the work.
    """

    def lower(
        self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None
    ) -> Tensor | bool | None:
        if mask is None:
            return None
        if mask.is_only_causal and T == S:
            return True
        dense = mask.dense(T, S, device)
        is_for_short = device.type == "cpu" and max(T, S) <= MAX_POSITIONS and torch.is_grad_enabled()
        return dense if dtype is None or is_for_short else additive(dense, dtype)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        is_causal = mask is True
        if bias is None and dropout == 0 and is_short(q, k, v):
            allowed = causal(q.size(2), q.device) if is_causal else mask
            if allowed is None or allowed.dtype == torch.bool:
                return attend_short(q, k, v, allowed, scale)
        if bias is not None:
            bias = bias.to(q.dtype)
            if is_causal:
                mask, is_causal = causal(q.size(2), q.device), False
            if mask is not None:
                bias = bias.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else bias + mask
            mask = bias
        if dropout == 0 and not is_causal and has_few_queries(q, k, v):
            return attend_few(q, k, v, mask, 1 / sqrt(q.size(-1)) if scale is None else scale)
        if is_decoding_step(q, k, mask, dropout):
            from clearformer.layers import triton_kernels

            return triton_kernels.attend_few(q, k, v, mask, 1 / sqrt(q.size(-1)) if scale is None else scale)
        if FIXED_SHAPES.has_triton and bias is None and short_cuda.is_short(q, k, v, mask, dropout):
            return short_cuda.attend_short(q, k, v, mask, 1 / sqrt(q.size(-1)) if scale is None else scale)
        has_plan = not q.is_cuda or (FIXED_SHAPES.is_on and dropout == 0)
        kernel = F.scaled_dot_product_attention if has_plan else without_cudnn
        return kernel(
            q, k, v, None if is_causal else mask, dropout, is_causal, scale=scale, enable_gqa=q.size(1) != k.size(1)
        )


def is_decoding_step(q: Tensor, k: Tensor, mask: Any, dropout: float) -> bool:
    """Whether this is attention of few queries without gradients, in a recorded step, for which Triton is faster."""
    return (
        not torch.compiler.is_compiling()  # first, so that no size becomes a condition of the compiled code
        and q.is_cuda
        and FIXED_SHAPES.is_on
        and q.size(2) * q.size(1) // k.size(1) <= MAX_QUERIES
        and isinstance(mask, Tensor)
        and q.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and mask.dtype == q.dtype
        and dropout == 0
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, mask)))
        and can_compile()
    )


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask that is added to the scores: 0 where `allowed`, (B, 1, T, S) bool, and −∞ elsewhere.

    The kernels of torch make this conversion in every layer, and on CUDA copy rows that do not start at multiples of 16
    bytes. Here, both happen once for all layers.
    """
    if allowed.stride(2) == 0 and allowed.size(2) > 1:  # the same for all queries, so one row is enough
        return additive(allowed[:, :, :1], dtype).expand(-1, -1, allowed.size(2), -1)
    S = allowed.size(-1)
    n = -(-S // 8) * 8 if allowed.is_cuda else S
    mask = torch.full((*allowed.shape[:-1], n), float("-inf"), dtype=dtype, device=allowed.device)[..., :S]
    return mask.masked_fill_(allowed, 0.0)


def causal(T: int, device: torch.device) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool, device=device).tril()


class CudnnOff:
    """Disable cuDNN's attention inside a `with` block; the last thread to leave the block restores the setting.

    `sdpa_kernel` also disables it, but adds 21 µs to a kernel of 24 µs, where this class adds 2 µs. And two threads
    that use `sdpa_kernel` at the same time may leave cuDNN disabled.
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


CUDNN_OFF = CudnnOff()  # one object per process, because the setting is global


def without_cudnn(*args: Any, **settings: Any) -> Tensor:
    """Call scaled_dot_product_attention without cuDNN.

    cuDNN makes a plan for every new shape, which takes 8 ms on the host, and batches of text differ in shape: for
    transformer-tiny, planning took five sixths of the training time. The flash and memory-efficient kernels need no
    plan.
    """
    # Under torch.compile, only sdpa_kernel works. It is evaluated while tracing, at no cost per step.
    with sdpa_kernel(KERNELS) if torch.compiler.is_compiling() else CUDNN_OFF:
        return F.scaled_dot_product_attention(*args, **settings)


class RecordingCore:
    """Compute with another core, such as the fused kernel, and append the attention pattern to `record`.

    An outer wrapper may add keys in front of the keys of the text, such as a learned prefix. The pattern then has
    columns for the added keys too. The keys of the text are the last columns, and their weights sum to less than one.
    """

    def __init__(self, core: Core) -> None:
        if innermost(core) is not core:
            raise ConfigError(
                f"RecordingCore around {type(core).__name__} would not see the inputs of the core inside it",
                "wrap the innermost core instead: rewrap(core, RecordingCore(innermost(core)))",
            )
        self.core, self.record = core, list[Tensor]()

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None) -> Any:
        return None if mask is None else (self.core.lower(mask, T, S, device, dtype), mask.dense(T, S, device))

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        lowered, dense = (None, None) if mask is None else mask
        self.record.append(pattern(q, k, dense, bias, 1 / sqrt(q.size(-1)) if scale is None else scale).detach())
        return self.core(q, k, v, lowered, bias, scale, dropout)


def innermost(core: Core) -> Core:
    """Return the core inside all wrappers, which does the computation. A wrapper keeps its inner core in `.core`."""
    return innermost(core.core) if hasattr(core, "core") else core


def rewrap(core: Core, inner: Core) -> Core:
    """Copy the wrappers of `core` and put `inner` inside them, in place of the innermost core; `core` is unchanged.

    rewrap(PrefixCore(FusedCore()), RecordingCore(FusedCore())) returns PrefixCore(RecordingCore(FusedCore())).
    """
    if not hasattr(core, "core"):
        return inner
    wrapper: Any = copy(core)
    wrapper.core = rewrap(core.core, inner)
    return wrapper


C = TypeVar("C", bound=Core)


@contextmanager
def swapped(model: nn.Module, change: Callable[[Core], C]) -> Iterator[list[C]]:
    """Replace the innermost core of every attention layer by `change(core)` in a `with` block; yield the new cores.

    The new cores are in the order of the layers. Wrappers stay in place around them, so that a new core sees the
    inputs that its wrappers produce.
    """
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    cores = [layer.core for layer in layers]  # they may differ: prefix tuning wraps the core of each layer separately
    changed = [change(innermost(core)) for core in cores]
    try:
        for layer, core, inner in zip(layers, cores, changed):
            layer.core = rewrap(core, inner)
        yield changed
    finally:
        for layer, core in zip(layers, cores):
            layer.core = core


def recording(model: nn.Module) -> AbstractContextManager[list[RecordingCore]]:
    """Record the pattern of every attention layer inside a `with` block; yield the recorders in the order of layers."""
    return swapped(model, RecordingCore)
