"""Attention between few positions: its equation, its gradient, and when it is used. test_backends.py has the masks."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from clearformer.layers.attention import attend
from clearformer.layers.backends import FusedCore
from clearformer.layers.masks import Causal, within
from clearformer.layers.short_attention import MAX_POSITIONS, attend_short, is_short

B, T, S, H, K, N = 2, 3, 5, 7, 11, 13


def inputs(T: int = T, S: int = S, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (B, H, T, K), (B, H, S, K), (B, H, S, N)
    q, k, v = (torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize("lengths", [None, (5, 2), (0, 4)], ids=["no-mask", "padding", "empty-row"])
def test_cross_attention_and_its_gradient_are_those_of_the_equation(lengths: tuple[int, int] | None) -> None:
    mask = None if lengths is None else within(S, torch.tensor(lengths))[:, None, None]  # (B, 1, 1, S)
    q, k, v = inputs()
    z, expected = attend_short(q, k, v, mask, 0.3), attend(q, k, v, mask, scale=0.3)
    dz = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(z, expected, rtol=0, atol=1e-13)
    for got, want in zip(torch.autograd.grad(z, (q, k, v), dz), torch.autograd.grad(expected, (q, k, v), dz)):
        assert torch.allclose(got, want, rtol=0, atol=1e-12)


def test_inputs_are_not_changed() -> None:
    q, k, v = inputs()
    before = [x.detach().clone() for x in (q, k, v)]
    attend_short(q, k, v, None, None).sum().backward()
    assert all(torch.equal(x, y) for x, y in zip((q, k, v), before))


def test_heads_in_the_layout_of_a_layer() -> None:
    """The layer passes q, k and v as views of one product, (B, T, H·K)."""
    x = torch.randn(B, T, 3 * H * K, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    q, k, v = (part.unflatten(-1, (H, K)).transpose(1, 2) for part in x.chunk(3, dim=-1))
    mask = Causal().dense(T, T, x.device)
    z, expected = attend_short(q, k, v, mask, None), attend(q, k, v, mask)
    (got,), (want,) = (torch.autograd.grad(y.square().sum(), x) for y in (z, expected))
    assert torch.allclose(got, want, rtol=0, atol=1e-12)


def is_used(q: Tensor, k: Tensor, v: Tensor, mask: bool | None = None, dropout: float = 0.0) -> bool:
    z = FusedCore()(q, k, v, mask, None, None, dropout)
    return z.grad_fn is not None and "ShortAttention" in z.grad_fn.name()


def test_only_training_on_short_texts_uses_it() -> None:
    assert is_used(*inputs())
    assert is_used(*inputs(T, T), mask=True)
    assert is_used(*inputs(MAX_POSITIONS, MAX_POSITIONS))
    assert not is_used(*inputs(MAX_POSITIONS + 1, S))
    assert not is_used(*inputs(T, MAX_POSITIONS + 1))
    assert not is_used(*inputs(), dropout=0.5)
    with torch.no_grad():
        assert not is_short(*inputs())


def test_half_precision_and_grouped_heads_stay_with_the_kernel_of_torch() -> None:
    assert not is_short(*inputs(dtype=torch.bfloat16))
    q, k, v = inputs()
    assert not is_short(q, k[:, :1], v[:, :1])
    for context, expected in ((nullcontext(), True), (torch.autocast("cpu", torch.bfloat16), False)):
        with context:
            assert is_short(*inputs(dtype=torch.float32)) is expected
