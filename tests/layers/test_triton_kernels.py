"""The Triton kernels against the equations in float64, on prime sizes."""

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    repeated = [x.double().repeat_interleave(q.size(1) // k.size(1), dim=1) for x in (k, v)]
    return (q.double() @ repeated[0].mT * 0.3 + mask.double()).softmax(-1) @ repeated[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("B", "H", "G", "T", "S", "K", "N"),
    [(1, 8, 8, 1, 32, 64, 64), (5, 6, 2, 3, 131, 13, 29), (1, 12, 12, 1, 4096, 64, 64), (2, 6, 2, 3, 1031, 13, 29)],
    ids=["one-block", "blocks", "parts", "parts-of-groups"],
)
def test_attend_few(B: int, H: int, G: int, T: int, S: int, K: int, N: int, dtype: torch.dtype) -> None:
    from clearformer.layers.triton_kernels import attend_few

    torch.manual_seed(1)
    q = torch.randn(B, H, T, K, device="cuda", dtype=dtype)
    k, v = (torch.randn(B, S, G, n, device="cuda", dtype=dtype).transpose(1, 2) for n in (K, N))
    allowed = torch.rand(B, 1, T, S, device="cuda") < 0.3
    allowed[..., 0] = True
    allowed[..., 64:96] = allowed[..., 700:] = False  # the last parts have no key at all
    mask = torch.zeros(B, 1, T, S, device="cuda", dtype=dtype).masked_fill(~allowed, float("-inf"))
    exact = attention(q, k, v, mask)
    bound = 2e-5 if dtype == torch.float32 else 2e-2  # products of K features and S weights, rounded in the dtype
    torch.testing.assert_close(attend_few(q, k, v, mask, 0.3).double(), exact, rtol=bound, atol=bound)
    k[:, :, 64:96] = v[:, :, 64:96] = float("nan")  # slots that no query sees are never used
    if S > 128:
        k[:, :, 64:128], allowed[..., 64:128] = float("nan"), False
        mask = mask.masked_fill(~allowed, float("-inf"))
        assert attend_few(q, k, v, mask, 0.3).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 7), (3, 2, 4096), (5, 4, 10007)])
def test_best_and_total(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from clearformer.layers.triton_kernels import best_and_total

    torch.manual_seed(2)
    logits = 20 * torch.randn(shape, device="cuda").to(dtype)
    logits[..., 3] = float("-inf")
    logits[..., 5] = logits[..., 6] = logits.amax(-1)  # of equal logits, the first is the best
    best, total = best_and_total(logits)
    assert best.equal(logits.cpu().argmax(-1).cuda())
    torch.testing.assert_close(total.double(), logits.double().logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_write_slots() -> None:
    from clearformer.layers.triton_kernels import write_slots

    B, S, G, W, K, N = 3, 11, 2, 4, 13, 7
    keys, values = (torch.zeros(B, S, G, n, device="cuda") for n in (K, N))
    k, v = (torch.randn(B, W, G, n, device="cuda").transpose(1, 2) for n in (K, N))
    places = torch.tensor([b * S + b + w for b in range(B) for w in range(W)], device="cuda")
    write_slots(keys, values, k, v, places)
    for buffer, new in ((keys, k), (values, v)):
        expected = torch.zeros_like(buffer)
        expected.flatten(0, 1)[places] = new.transpose(1, 2).flatten(0, 1)
        assert buffer.equal(expected)
