import pytest
import torch

from clearformer.errors import ConfigError
from clearformer.lens.rollout import follow, rollout
from clearformer.tuning.prefix import PrefixConfig, add_prefix


def test_it_is_the_equation_by_hand() -> None:
    """R = Ã_2 Ã_1, whose second row is half of each row of Ã_1."""
    swap, stay = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.eye(2)
    one = torch.stack([swap, stay])[None]  # two heads, whose mean is ½ everywhere: Ã_1 = [[¾, ¼], [¼, ¾]]
    two = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])  # Ã_2 = [[1, 0], [½, ½]]
    expected = torch.tensor([[[0.75, 0.25], [0.5, 0.5]]])
    torch.testing.assert_close(rollout([one, two]), expected)
    assert not rollout([two, one]).equal(expected)  # the order counts


def test_rows_sum_to_one() -> None:
    torch.manual_seed(0)
    patterns = [torch.randn(2, 3, 5, 5).softmax(-1) for _ in range(7)]
    torch.testing.assert_close(rollout(patterns).sum(-1), torch.ones(2, 5))


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_heat_is_what_the_head_reads_of_each_patch(handle, sample, pooling: str) -> None:
    vit = handle("vit", pooling=pooling)
    before = vit.model.encoder.blocks[0].attn.core
    told = follow(vit, sample(vit, 2))
    heat = torch.tensor(told["heat"])
    assert heat.shape == (2, 3, 3)
    total = heat.sum((1, 2))
    assert (total < 1).all() if pooling == "class" else total.allclose(torch.ones(2))  # the class token keeps some
    assert vit.model.encoder.blocks[0].attn.core is before
    assert (told["captions"], len(told["images"])) == (["cat", "dog"], 2)


def test_what_comes_from_a_learned_prefix_is_not_in_the_heat(handle, sample) -> None:
    """Queries of zeros look alike at 11 learned keys and 9 patches, so that a layer keeps ½ + ½ · 9/20 of a whole."""
    vit = handle("vit", pooling="mean")
    add_prefix(vit.model, PrefixConfig(length=11))
    for block in vit.model.encoder.blocks:
        for parameter in block.attn.qkv.parameters():
            torch.nn.init.zeros_(parameter)
    heat = torch.tensor(follow(vit, sample(vit, 2))["heat"], dtype=torch.float64)
    torch.testing.assert_close(heat, torch.full((2, 3, 3), 0.725**2 / 9, dtype=torch.float64))


def test_only_what_attends_can_be_followed(handle, sample) -> None:
    resnet = handle("resnet")
    with pytest.raises(ConfigError, match="resnet has no attention layers"):
        follow(resnet, sample(resnet, 1))
