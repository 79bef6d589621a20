from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.layers.attention import Core, MultiHeadAttention, PlainCore
from clearformer.layers.backends import FusedCore, RecordingCore
from clearformer.layers.blocks import RESIDUALS, Block, NoResidual, PostNorm, PreNorm, Stack
from clearformer.layers.feedforward import FeedForward
from clearformer.layers.masks import Causal, Mask, Padding
from clearformer.layers.positions import Alibi, Learned, Positions

B, T, S, H, D, F = 2, 3, 5, 7, 14, 11


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_pre_and_post_norm_by_hand() -> None:
    """With "norm" doubling and a sublayer that adds 3: x + (2x + 3), 2(x + (x + 3)), and 2x + 3 alone."""
    x = torch.tensor([1.0, 5])
    assert PreNorm(Double(), 0.0)(x, lambda h: h + 3).tolist() == [6, 18]
    assert PostNorm(Double(), 0.0)(x, lambda h: h + 3).tolist() == [10, 26]
    assert NoResidual(Double(), 0.0)(x, lambda h: h + 3).tolist() == [5, 13]


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_dropout_spares_the_stream(residual: str) -> None:
    add = RESIDUALS[residual](nn.Identity(), dropout=0.999999)
    x = torch.randn(B, T, D)
    assert add(x, lambda h: h + 100).equal(x)
    assert not add.eval()(x, lambda h: h + 100).equal(x)


def block(residual: str = "pre", has_cross: bool = False) -> Block:
    attention = partial(MultiHeadAttention, D, H, core=FusedCore())
    made = RESIDUALS[residual]
    return Block(
        attention(), FeedForward(D, F), lambda: made(nn.LayerNorm(D), 0.0), attention() if has_cross else None
    ).double()


@pytest.mark.parametrize("residual", RESIDUALS)
def test_a_block_is_its_sublayers_in_order(residual: str) -> None:
    b, x, memory = block(residual, has_cross=True), torch.randn(B, T, D).double(), torch.randn(B, S, D).double()
    if residual == "pre":
        h = x + b.attn(b.add_attn.norm(x))
        h = h + b.cross(b.add_cross.norm(h), memory)
        expected = h + b.mlp(b.add_mlp.norm(h))
    elif residual == "none":
        h = b.attn(b.add_attn.norm(x))
        expected = b.mlp(b.add_mlp.norm(b.cross(b.add_cross.norm(h), memory)))
    else:
        h = b.add_attn.norm(x + b.attn(x))
        h = b.add_cross.norm(h + b.cross(h, memory))
        expected = b.add_mlp.norm(h + b.mlp(h))
    torch.testing.assert_close(b(x, memory=memory), expected)


def test_an_encoder_block_has_no_cross_attention() -> None:
    assert {name.split(".")[0] for name, _ in block().named_parameters()} == {"attn", "add_attn", "mlp", "add_mlp"}
    assert not hasattr(block(), "cross")


class CountingCore(FusedCore):
    """Counts how often a mask is lowered."""

    def __init__(self) -> None:
        self.lowered: list[tuple[Mask | None, int, int, str]] = []

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: Any = None) -> Any:
        self.lowered.append((mask, T, S, device.type))
        return super().lower(mask, T, S, device, dtype)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_stack_lowers_each_mask_once_for_all_blocks_where_they_are(device: str) -> None:
    core, causal, padding = CountingCore(), Causal(), Padding(torch.ones(B, S, dtype=torch.bool, device=device))
    blocks = [block(has_cross=True).float() for _ in range(3)]
    for b in blocks:
        b.attn.core = b.cross.core = core
    stack = Stack(blocks, Positions(), 0.0, None).to(device)
    x, memory = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    stack(x, torch.arange(T), causal, memory, padding)
    assert core.lowered == [(causal, T, T, device), (padding, T, S, device)]


def test_each_mask_is_lowered_by_the_core_that_will_use_it() -> None:
    own, across, causal, padding = CountingCore(), CountingCore(), Causal(), Padding(torch.ones(B, S, dtype=torch.bool))
    blocks = [block(has_cross=True).float() for _ in range(2)]
    for b in blocks:
        b.attn.core, b.cross.core = own, across
    Stack(blocks, Positions(), 0.0, None)(torch.randn(B, T, D), torch.arange(T), causal, torch.randn(B, S, D), padding)
    assert own.lowered == [(causal, T, T, "cpu")]
    assert across.lowered == [(padding, T, S, "cpu")]


SWAPS: dict[str, Callable[[Core], Core]] = {
    "plain": lambda core: PlainCore(),
    "recording": RecordingCore,
    "recording-plain": lambda core: RecordingCore(PlainCore()),
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("place", ["attn", "cross"])
@pytest.mark.parametrize("is_padded", [False, True], ids=["causal", "causal-padding"])
def test_one_layer_can_have_another_core(swap: str, place: str, is_padded: bool) -> None:
    """A flag, a tensor and a pair of them: each core gets what it lowered itself."""
    keys, core = torch.arange(T) < torch.tensor([[2], [T]]), FusedCore()
    mask = Causal() & Padding(keys) if is_padded else Causal()
    memory_mask = Padding(torch.arange(S) < torch.tensor([[S], [3]]))
    blocks = [block(has_cross=True) for _ in range(3)]
    for b in blocks:
        b.attn.core = b.cross.core = core
    stack = Stack(blocks, Positions(), 0.0, None)
    told = torch.randn(B, T, D).double(), torch.arange(T), mask, torch.randn(B, S, D).double(), memory_mask
    expected, other = stack(*told), SWAPS[swap](core)
    getattr(blocks[1], place).core = other
    torch.testing.assert_close(stack(*told), expected, atol=1e-12, rtol=1e-12)
    if isinstance(other, RecordingCore):
        [looks] = other.record
        assert looks.shape == (B, H, T, T if place == "attn" else S)
        allowed = mask.dense(T, T, looks.device) if place == "attn" else memory_mask.dense(T, S, looks.device)
        torch.testing.assert_close(looks.sum(-1), torch.ones(B, H, T).double())
        assert not looks.masked_select(~allowed).any()


def test_a_core_beside_a_shared_one_lowers_once_more() -> None:
    shared, other, causal = CountingCore(), CountingCore(), Causal()
    blocks = [block().float() for _ in range(3)]
    for b, core in zip(blocks, (shared, other, shared)):
        b.attn.core = core
    Stack(blocks, Positions(), 0.0, None)(torch.randn(B, T, D), torch.arange(T), causal)
    assert shared.lowered == other.lowered == [(causal, T, T, "cpu")]


@pytest.mark.skipif(torch.__version__ < "2.12", reason="Dynamo could not trace a frozen dataclass's fields")
def test_a_stack_of_several_cores_is_one_graph() -> None:
    blocks, x = [block() for _ in range(3)], torch.randn(B, T, D).double()
    blocks[2].attn.core, blocks[1].attn.core = blocks[0].attn.core, PlainCore()
    stack = Stack(blocks, Positions(), 0.0, None)
    told = x, torch.arange(T), Causal() & Padding(torch.arange(T) < torch.tensor([[2], [T]]))
    compiled = torch.compile(stack, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*told), stack(*told), atol=1e-12, rtol=1e-12)


def test_a_stack_is_its_blocks_one_after_another() -> None:
    first, second, positions, norm = block(), block(), Learned(D, 5).double(), nn.LayerNorm(D).double()
    x, where = torch.randn(B, T, D).double(), torch.arange(T)
    expected = second(first(positions.add(x, where)))
    torch.testing.assert_close(Stack([first, second], positions, 0.0, None)(x, where), expected)
    torch.testing.assert_close(Stack([first, second], positions, 0.0, norm)(x, where), norm(expected))


def test_positions_reach_the_scores() -> None:
    stack = Stack([block()], Alibi(H), 0.0, None).double()
    x = torch.randn(B, T, D).double()
    assert not stack(x, torch.arange(T)).allclose(stack(x, torch.arange(T) * 3))
    torch.testing.assert_close(stack(x, torch.arange(T)), stack(x, torch.arange(T) + 17))


def test_each_block_may_have_its_own_memory() -> None:
    blocks = [block(has_cross=True) for _ in range(2)]
    stack, memory = Stack(blocks, Positions(), 0.0, None), torch.randn(B, S, D).double()
    x, where = torch.randn(B, T, D).double(), torch.arange(T)
    remembered = [b.cross.remember(memory) for b in blocks]
    torch.testing.assert_close(stack(x, where, memory=remembered), stack(x, where, memory=memory))
