"""Every core against the equation."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.errors import ConfigError
from clearformer.layers import short_attention
from clearformer.layers.attention import Core, MultiHeadAttention, PlainCore, attend, pattern
from clearformer.layers.backends import (
    FusedCore,
    RecordingCore,
    innermost,
    recording,
    rewrap,
    swapped,
    without_cudnn,
)
from clearformer.layers.masks import Ancestors, Causal, Documents, Mask, Padding, PrefixLM, Window

from ..bounds import float32_bounds

B, T, H, K, N = 2, 5, 6, 11, 7
CPU = torch.device("cpu")

CORES: dict[str, Callable[[], Core]] = {
    "plain": PlainCore,
    "fused": FusedCore,
    "recording": lambda: RecordingCore(FusedCore()),
}


def keys() -> Tensor:
    return torch.arange(T) < torch.tensor([[3], [T]])


def tree() -> Tensor:
    """Each query sees itself, and some of the others."""
    return torch.eye(T, dtype=torch.bool) | (torch.arange(B * T * T).view(B, T, T) ** 2 % 7 < 2)


MASKS: dict[str, Callable[[], Mask | None]] = {
    "none": lambda: None,
    "causal": Causal,
    "padding": lambda: Padding(keys()),
    "causal-padding": lambda: Causal() & Padding(keys()),
    "window": lambda: Window(2),
    "documents": lambda: Documents(torch.tensor([[0, 0, 1, 1, 1], [3, 5, 5, 7, 7]])) & Causal(),
    "prefix": lambda: PrefixLM(torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]]).bool()),
    "ancestors": lambda: Ancestors(tree()),
    "nothing-to-see": lambda: Causal() & Padding(keys() & torch.tensor([[False], [True]])),
}

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(dtype: torch.dtype, n_kv_heads: int, d_value: int, device: str = "cpu") -> Inputs:
    generator = torch.Generator().manual_seed(n_kv_heads)
    shapes = (B, H, T, K), (B, n_kv_heads, T, K), (B, n_kv_heads, T, d_value), (H, T, T)
    q, k, v, bias = (torch.randn(s, dtype=torch.float64, generator=generator).to(device, dtype) for s in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), bias.requires_grad_()


def with_gradients(z: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(z.size(-1), dtype=z.dtype, device=z.device) - 3.0  # a loss that tells the features apart
    return [z, *torch.autograd.grad((z * weights).sum(), wanted)]


def by_equation(inputs: list[Tensor], dense: Tensor | None, scale: float | None) -> list[Tensor]:
    q, k, v, *bias = inputs
    return with_gradients(attend(q, k, v, dense, *bias, scale=scale), inputs)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("n_kv_heads", [6, 2])
def test_results_and_gradients_are_those_of_the_equation(
    name: str, mask: str, dtype: torch.dtype, n_kv_heads: int
) -> None:
    core, described = CORES[name](), MASKS[mask]()
    dense = None if described is None else described.dense(T, T, CPU)
    for d_value, has_bias, scale in ((K, False, None), (N, False, 0.3), (K, True, None), (N, True, 0.3)):
        q, k, v, bias = inputs(dtype, n_kv_heads, d_value)
        told = bias if has_bias else None
        wanted = [q, k, v, bias] if has_bias else [q, k, v]
        ours = core(q, k, v, core.lower(described, T, T, CPU), told, scale, 0.0)
        theirs = by_equation(wanted, dense, scale)
        # Sums over K features, and, in a key's gradient, over T queries of each head that shares it.
        n_terms = K + T * H // n_kv_heads
        bounds = [1e-12] * 5 if dtype == torch.float64 else float32_bounds(by_equation, n_terms, wanted, dense, scale)
        for got, expected, bound in zip(with_gradients(ours, wanted), theirs, bounds):
            assert got.isfinite().all()
            assert (got - expected).abs().max() <= bound


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("n_kv_heads", [6, 2])
def test_the_kernel_for_long_texts_too(mask: str, n_kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's kernel, which texts of these lengths would not reach on the CPU."""
    monkeypatch.setattr(short_attention, "MAX_POSITIONS", T - 1)
    test_results_and_gradients_are_those_of_the_equation("fused", mask, torch.float32, n_kv_heads)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("has_bias", [False, True], ids=["bare", "biased"])
def test_a_query_that_may_look_nowhere_gives_zeros(name: str, has_bias: bool) -> None:
    core, mask = CORES[name](), Padding(torch.tensor([[False] * T, [True] * T]))
    q, k, v, bias = inputs(torch.float32, H, K)
    z = core(q, k, v, core.lower(mask, T, T, CPU), bias if has_bias else None, None, 0.0)
    assert not z[0].any()
    assert z[1].all()


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("n_queries", [T, 3])
def test_masks_are_lowered_where_the_queries_are(name: str, mask: str, n_queries: int) -> None:
    """Without a GPU the meta device will do: it, too, refuses a mask that was made elsewhere."""
    core, meta = CORES[name](), torch.device("meta")
    with meta:
        described = MASKS[mask]()
    if isinstance(described, Ancestors):
        described = Ancestors(described.table[:, :n_queries])
    lowered = core.lower(described, n_queries, T, meta)
    for part in lowered if isinstance(lowered, tuple) else (lowered,):
        assert not isinstance(part, Tensor) or part.device == meta
    q, k, v, _ = inputs(torch.float32, 2, N, "meta")
    assert core(q[:, :, :n_queries], k, v, lowered, None, None, 0.0).shape == (B, H, n_queries, N)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["float32", "bfloat16", "float16"]
)
@pytest.mark.parametrize("has_bias", [False, True], ids=["bare", "biased"])
def test_kernels_on_the_device(name: str, mask: str, dtype: torch.dtype, has_bias: bool) -> None:
    """Head widths of 8 and 16, which the fused kernels like, against the equation in float64."""
    core, cuda, described = CORES[name](), torch.device("cuda"), MASKS[mask]()
    with cuda:
        lowered = core.lower(MASKS[mask](), T, T, cuda)
    dense = None if described is None else described.dense(T, T, CPU)
    q, k, v, bias = (x.detach().repeat_interleave(2, -1) if i < 3 else x for i, x in enumerate(inputs(dtype, H, 8)))
    q, k = q[..., :16], k[..., :16]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = [x.detach().cuda().requires_grad_() for x in (q, k, v)]
    ours = core(wanted[0], wanted[1], wanted[2], lowered, bias.detach().cuda() if has_bias else None, None, 0.0)
    reference = attend(exact[0], exact[1], exact[2], dense, bias.detach().double() if has_bias else None)
    tolerance = 1e-4 if dtype == torch.float32 else 6e-2
    for got, expected in zip(with_gradients(ours, wanted), with_gradients(reference, exact)):
        torch.testing.assert_close(got.cpu().double(), expected, atol=tolerance * 3, rtol=tolerance)


@pytest.mark.parametrize("inner", [PlainCore, FusedCore])
@pytest.mark.parametrize("mask", MASKS)
def test_recording_does_not_disturb(inner: Callable[[], Core], mask: str) -> None:
    core, described = RecordingCore(inner()), MASKS[mask]()
    q, k, v, bias = inputs(torch.float32, 3, N)
    z = core(q, k, v, core.lower(described, T, T, CPU), bias, None, 0.0)
    assert z.equal(inner()(q, k, v, inner().lower(described, T, T, CPU), bias, None, 0.0))
    [looks] = core.record
    assert looks.shape == (B, H, T, T)
    assert not looks.requires_grad
    sees = torch.ones(B, H, T) if described is None else described.dense(T, T, CPU).any(-1).expand(B, H, T).float()
    torch.testing.assert_close(looks.sum(-1), sees)
    torch.testing.assert_close(looks @ v.repeat_interleave(2, dim=1), z)


def test_recording_keeps_every_call_in_order() -> None:
    core = RecordingCore(PlainCore())
    for scale in (0.0, 1.0):
        core(*inputs(torch.float32, H, K)[:3], None, None, scale, 0.0)
    torch.testing.assert_close(core.record[0], torch.full((B, H, T, T), 1 / T))
    assert len(core.record) == 2
    assert core.record[1].std() > 0.1


class Halved:
    """A wrapper: another core, shown half of each query."""

    def __init__(self, core: Core) -> None:
        self.core, self.lower = core, core.lower

    def __call__(self, q: Tensor, *rest: Any) -> Tensor:
        return self.core(q / 2, *rest)


def test_wrappers_stay_around_another_innermost_core() -> None:
    plain, fused = PlainCore(), FusedCore()
    chain = Halved(Halved(plain))
    again = rewrap(chain, fused)
    assert [type(again), type(again.core), again.core.core] == [Halved, Halved, fused]
    assert innermost(chain) is chain.core.core is plain  # as it was
    assert innermost(plain) is rewrap(fused, plain) is plain
    q, k, v, _ = inputs(torch.float64, H, N)
    torch.testing.assert_close(again(q, k, v, None, None, None, 0.0), attend(q / 4, k, v))


def test_a_recorder_stands_inside_every_wrapper() -> None:
    layer = MultiHeadAttention(12, 6, core=Halved(FusedCore())).double()
    before, x = layer.core, torch.randn(B, T, 12).double()
    expected = layer(x)
    with recording(layer) as [recorder]:
        assert layer.core.core is recorder
        assert layer(x).equal(expected)
    assert layer.core is before
    q, k, _ = layer.split(layer.qkv(x))
    torch.testing.assert_close(recorder.record, [pattern(q / 2, k, None, None, layer.scale).detach()])
    with pytest.raises(ConfigError, match="RecordingCore around Halved would not see the inputs") as caught:
        RecordingCore(Halved(FusedCore()))
    assert caught.value.hint is not None
    assert "rewrap" in caught.value.hint


def test_another_core_for_a_while_in_every_layer() -> None:
    """What a lens does: the same model with cores that edit, here to look at the first position alone."""

    class First(PlainCore):
        def __call__(self, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
            return v[:, :, :1].expand(-1, -1, q.size(2), -1)

    layers, x = nn.Sequential(*(MultiHeadAttention(12, 6) for _ in range(3))), torch.randn(B, T, 12)
    cores = [layer.core for layer in layers]
    with swapped(layers, lambda core: First()) as firsts:
        assert [layer.core for layer in layers] == firsts
        flat = layers(x)
    assert flat.allclose(flat[:, :1].expand_as(flat))
    assert [layer.core for layer in layers] == cores
    with pytest.raises(KeyError), swapped(layers, lambda core: First()):
        raise KeyError
    assert [layer.core for layer in layers] == cores


def test_only_a_square_causal_mask_becomes_the_flag() -> None:
    core = FusedCore()
    assert core.lower(Causal(), T, T, CPU) is True
    assert core.lower(None, T, T, CPU) is None
    assert isinstance(core.lower(Causal(), 3, T, CPU), Tensor)
    assert isinstance(core.lower(Causal() & Padding(keys()), T, T, CPU), Tensor)


def fused_by_any_kernel(*args: Any, **settings: Any) -> Tensor:
    """Stands in for torch's function, and says whether cuDNN may be chosen."""
    return torch.tensor(torch.backends.cuda.cudnn_sdp_enabled())


@pytest.mark.parametrize("was_on", [True, False], ids=["on", "off"])
def test_cudnn_is_off_during_a_call_alone(monkeypatch: pytest.MonkeyPatch, was_on: bool) -> None:
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fused_by_any_kernel)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(was_on)
        assert not without_cudnn()
        assert torch.backends.cuda.cudnn_sdp_enabled() == was_on
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
        with pytest.raises(TypeError):
            without_cudnn()
        assert torch.backends.cuda.cudnn_sdp_enabled() == was_on
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_cudnn_is_off_in_every_thread_and_on_again_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls that overlap: the first to begin is the first to end."""
    both, ended = threading.Barrier(2), threading.Event()

    def overlapping(is_first: bool) -> Tensor:
        both.wait(30)
        assert is_first or ended.wait(30)
        return fused_by_any_kernel()

    def call(is_first: bool) -> bool:
        is_on = bool(without_cudnn(is_first))
        if is_first:
            ended.set()
        return is_on

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", overlapping)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(call, [True, False])) == [False, False]
        assert torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_the_choice_of_kernel_is_part_of_the_compiled_graph() -> None:
    """On the CPU the kernels that CUDA chooses among are not there, but the path is the same."""
    q, k, v, _ = inputs(torch.float64, H, N)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    compiled = torch.compile(without_cudnn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # inside Inductor
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_cudnn_is_never_chosen_on_the_device(is_compiled: bool) -> None:
    q = torch.randn(2, 4, 128, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    core = torch.compile(FusedCore(), fullgraph=True) if is_compiled else FusedCore()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as seen:
        core(q, q, q, True, None, None, 0.0).sum().backward()
    names = [event.key for event in seen.key_averages() if "attention" in event.key]
    assert names
    assert not [name for name in names if "cudnn" in name]
    assert torch.backends.cuda.cudnn_sdp_enabled()
