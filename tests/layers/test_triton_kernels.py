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


def test_eos_is_never_the_best_token_of_a_row_that_is_too_short() -> None:
    from clearformer.layers.triton_kernels import best_and_total

    torch.manual_seed(3)
    logits = torch.randn(3, 2, 4999, device="cuda")
    logits[:, :, 7] = 9.0  # the best token, here EOS
    lengths = torch.tensor([0, 4, 5], device="cuda")
    best, total = best_and_total(logits, 7, lengths, 5)
    allowed = logits.clone()
    allowed[:2, :, 7] = float("-inf")
    assert best.equal(allowed.argmax(-1))
    torch.testing.assert_close(total.double(), logits.double().logsumexp(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("D", [131, 769, 2053])
def test_add_and_norm(D: int, dtype: torch.dtype) -> None:
    from clearformer.layers.triton_kernels import add_and_norm

    torch.manual_seed(4)
    x, y = (torch.randn(5, 3, D, device="cuda").to(dtype) for _ in range(2))
    norm = torch.nn.LayerNorm(D, device="cuda", dtype=dtype)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    weights = norm.weight.double(), norm.bias.double()
    exact, of_sum = (torch.nn.functional.layer_norm(z.double(), (D,), *weights, norm.eps) for z in (x, x + y))
    bound = 1e-5 if dtype == torch.float32 else 3e-2  # means over D features, rounded in the dtype
    for second, expected in ((None, exact), (y, of_sum)):
        z = add_and_norm(x, second, norm.weight, norm.bias, norm.eps)
        torch.testing.assert_close(z.double(), expected, rtol=bound, atol=bound)


def test_bookkeeping_of_a_state() -> None:
    from clearformer.layers.triton_kernels import advance, occupy

    B, W, N = 5, 3, 17
    used, position = torch.tensor([0, 3, 6, 9, 2]), torch.arange(B)[:, None]
    places, slots = torch.zeros(B * W, dtype=torch.long), torch.zeros(B, N, dtype=torch.long)
    paths = torch.rand(B, W, N) < 0.5
    on_device = [x.cuda() for x in (used, position, places, slots, paths)]
    occupy(*on_device)
    columns = used[:, None] + torch.arange(W)
    expected = torch.arange(B)[:, None] * N + columns
    assert on_device[2].cpu().equal(expected.flatten())
    assert on_device[3].cpu().equal(slots.scatter(1, columns, position.expand(-1, W)))
    alone = torch.eye(W, dtype=torch.bool).expand(B, -1, -1)
    assert on_device[4].cpu().equal(paths.scatter(2, columns[:, None].expand(-1, W, -1), alone))
    done = torch.tensor([True, False, False, True, False])
    advance(on_device[0], on_device[1], done.cuda(), W)
    assert on_device[0].cpu().equal(used + ~done * W)
    assert on_device[1].cpu().equal(position + ~done[:, None])


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
