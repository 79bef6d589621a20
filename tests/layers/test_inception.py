import torch
import torch.nn.functional as F

from clearformer.layers.conv import Conv
from clearformer.layers.inception import Inception

B, C, N = 2, 3, 7


def plain(*sizes: int) -> Conv:
    return Conv(*sizes, norm=False)


def test_branches_stand_side_by_side() -> None:
    block, x = Inception(C, (2, 5, 3, 4, 1, 6), plain), torch.randn(B, C, N, N)
    y = block(x)
    assert y.shape == (B, block.channels, N, N) == (B, 2 + 3 + 1 + 6, N, N)
    one, three, five, pool = y.split([2, 3, 1, 6], dim=1)
    torch.testing.assert_close(one, block.one(x))
    torch.testing.assert_close(three, block.three[1](block.three[0](x)))
    torch.testing.assert_close(five, block.five[1](block.five[0](x)))
    torch.testing.assert_close(pool, block.pool[1](F.max_pool2d(x, 3, 1, 1)))
    assert block.five[1].conv.kernel_size == (5, 5)  # type: ignore[union-attr]


def test_the_naive_block_hands_on_every_channel_of_its_pool() -> None:
    block, x = Inception(C, (2, 0, 5, 0, 1, 0), plain), torch.randn(B, C, N, N)
    y = block(x)
    assert y.shape == (B, 2 + 5 + 1 + C, N, N)
    assert y[:, -C:].equal(F.max_pool2d(x, 3, 1, 1))
    assert [len(branch) for branch in (block.three, block.five, block.pool)] == [1, 1, 1]
