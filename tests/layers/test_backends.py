"""Every core against the equation."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clearformer.layers.attention import Core, PlainCore, attend
from clearformer.layers.backends import FusedCore, RecordingCore
from clearformer.layers.masks import Ancestors, Causal, Documents, Mask, Padding, Prefix, Window

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
    "prefix": lambda: Prefix(torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]]).bool()),
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


def test_only_a_square_causal_mask_becomes_the_flag() -> None:
    core = FusedCore()
    assert core.lower(Causal(), T, T, CPU) is True
    assert core.lower(None, T, T, CPU) is None
    assert isinstance(core.lower(Causal(), 3, T, CPU), Tensor)
    assert isinstance(core.lower(Causal() & Padding(keys()), T, T, CPU), Tensor)
