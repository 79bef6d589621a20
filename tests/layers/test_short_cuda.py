"""Attention between few positions on CUDA, against the equation in float64, on prime sizes."""

import pytest
import torch

from clearformer.layers import short_cuda
from clearformer.layers.attention import attend
from clearformer.layers.backends import FusedCore
from clearformer.layers.fixed_shapes import FIXED_SHAPES
from clearformer.layers.masks import Causal, Padding

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def heads(B: int, T: int, n: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Heads in the layout of a projection, (B, T, n·width) seen as (B, n, T, width)."""
    return torch.randn(B, T, n, width, device="cuda", dtype=dtype).transpose(1, 2).requires_grad_()


@pytest.mark.gpu
@on_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", ["none", "causal", "padding"])
@pytest.mark.parametrize(
    ("B", "H", "G", "T", "S", "K", "N"),
    [(3, 2, 2, 7, 7, 13, 29), (2, 6, 2, 5, 5, 16, 16), (2, 4, 4, 31, 31, 64, 64), (2, 2, 1, 61, 61, 32, 32)],
    ids=["small", "grouped", "two-blocks", "four-blocks"],
)
def test_results_and_gradients(
    B: int, H: int, G: int, T: int, S: int, K: int, N: int, rule: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    q, k, v = heads(B, T, H, K, dtype), heads(B, S, G, K, dtype), heads(B, S, G, N, dtype)
    keys = torch.rand(B, S, device="cuda") < 0.7
    keys[0], keys[1, 0] = False, True  # the first row may attend to nothing
    mask = {"none": None, "causal": Causal(), "padding": Padding(keys)}[rule]
    lowered = FusedCore().lower(mask, T, S, q.device, dtype)
    assert short_cuda.is_short(q, k, v, lowered, 0.0)
    z = short_cuda.attend_short(q, k, v, lowered, 0.3)
    dz = torch.randn_like(z)
    actual = [z, *torch.autograd.grad(z, (q, k, v), dz)]
    inputs = [x.detach().double().requires_grad_() for x in (q, k, v)]
    allowed = None if mask is None else mask.dense(T, S, q.device)
    exact = attend(*inputs, allowed, scale=0.3)
    expected = [exact, *torch.autograd.grad(exact, inputs, dz.double())]
    bound = 5e-5 if dtype == torch.float32 else 8e-2  # sums of at most 64 products, in the dtype
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)


@pytest.mark.gpu
@on_cuda
def test_the_operation_is_sound_for_torch_compile() -> None:
    q, k, v = (heads(2, 7, 2, 16, torch.float32) for _ in range(3))
    torch.library.opcheck(short_cuda.forward, (q, k, v, None, True, 0.3))


@pytest.mark.gpu
@on_cuda
def test_it_is_used_where_shapes_recur(monkeypatch: pytest.MonkeyPatch) -> None:
    n_calls = []
    original = short_cuda.attend_short
    monkeypatch.setattr(short_cuda, "attend_short", lambda *args: n_calls.append(1) or original(*args))
    q, k, v = (heads(2, 7, 2, 16, torch.bfloat16) for _ in range(3))
    core = FusedCore()
    core(q, k, v, True, None, None, 0.0)
    assert len(n_calls) == 0
    with FIXED_SHAPES:
        core(q, k, v, True, None, None, 0.0)
        assert len(n_calls) == 1
        core(q, k, v, True, None, None, 0.1)  # dropout is torch's
        core(q, k, v, True, torch.zeros(1, 2, 7, 7, device="cuda"), None, 0.0)
        assert len(n_calls) == 1


def test_nothing_changes_on_the_cpu() -> None:
    q = torch.randn(2, 2, 7, 16)
    with FIXED_SHAPES:
        assert not short_cuda.is_short(q, q, q, None, 0.0)


def test_fixed_shapes_end_with_the_block() -> None:
    with FIXED_SHAPES:
        assert FIXED_SHAPES.is_on
    assert not FIXED_SHAPES.is_on
    assert not FIXED_SHAPES.has_triton
