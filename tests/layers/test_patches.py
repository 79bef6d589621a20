import torch
import torch.nn.functional as F

from clearformer.layers.patches import Patches

B, C, D, PATCH, SIDE = 2, 3, 5, 7, 3
N = PATCH * SIDE


def test_a_patch_is_a_word_and_its_embedding_a_matrix_product() -> None:
    patches = Patches(C, PATCH, SIDE, D, has_class=True).double()
    pixels = torch.randn(B, C, N, N, dtype=torch.float64)
    x = patches(pixels) - patches.positions
    assert x.shape == (B, SIDE * SIDE + 1, D)
    assert patches.class_token is not None
    torch.testing.assert_close(x[:, 0], patches.class_token[0].expand(B, -1))
    for place, (row, column) in enumerate((r, c) for r in range(SIDE) for c in range(SIDE)):
        word = pixels[:, :, row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH].flatten(1)
        torch.testing.assert_close(x[:, 1 + place], F.linear(word, patches.conv.weight.flatten(1), patches.conv.bias))


def test_positions_are_stretched_for_another_size_but_the_class_tokens() -> None:
    patches = Patches(C, PATCH, SIDE, D, has_class=True).double()
    with torch.no_grad():  # the first feature says the column, which a stretched table says still
        patches.positions[0, 1:, 0] = torch.arange(SIDE).repeat(SIDE)
    wide = patches.interpolated(5, 5)
    assert wide.shape == (1, 26, D)
    assert wide[0, 0].equal(patches.positions[0, 0])
    columns = wide[0, 1:, 0].unflatten(0, (5, 5))
    torch.testing.assert_close(columns, columns[:1].expand(5, -1))
    assert (columns[0].diff() > 0).all()
    torch.testing.assert_close(columns[0, 2].item(), 1.0)
    assert patches.interpolated(SIDE, SIDE) is patches.positions
    assert patches(torch.randn(B, C, 5 * PATCH, 5 * PATCH).double()).shape == (B, 26, D)


def test_without_a_class_token_there_are_patches_alone() -> None:
    patches = Patches(C, PATCH, SIDE, D, has_class=False)
    assert patches(torch.randn(B, C, N, N)).shape == (B, SIDE * SIDE, D)
    assert patches.interpolated(2, 2).shape == (1, 4, D)
