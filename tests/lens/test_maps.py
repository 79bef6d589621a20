import pytest
import torch

from clearformer.errors import ConfigError
from clearformer.layers.conv import Conv
from clearformer.lens import features, filters
from clearformer.lens.maps import laid_out, maps_of, pick


def test_every_layer_once_and_whole(handle, sample) -> None:
    """Not its parts, nor the stages that only hand on what their last block made."""
    resnet = handle("resnet")
    batch = resnet.batch(sample(resnet, 2).pixels)
    found, hidden = maps_of(resnet.model, batch)
    first = ["stages.0.0.path.0", "stages.0.0.path.1", "stages.0.0"]
    second = ["stages.1.0.path.0", "stages.1.0.path.1", "stages.1.0.shortcut", "stages.1.0"]
    assert list(found) == ["stem", *first, *second]
    assert [tuple(found[name].shape) for name in ("stem", "stages.1.0")] == [(2, 5, 29, 29), (2, 7, 15, 15)]
    assert (found["stem"] >= 0).all()  # with its relu
    torch.testing.assert_close(hidden, found["stages.1.0"].mean((2, 3)))
    assert not resnet.model.stem._forward_hooks
    assert isinstance(resnet.model.stem, Conv)


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_tokens_lie_where_their_patches_do(handle, sample, pooling: str) -> None:
    vit = handle("vit", pooling=pooling)
    found, _ = maps_of(vit.model, vit.batch(sample(vit, 2).pixels))
    assert list(found) == ["patches.conv", "encoder.blocks.0", "encoder.blocks.1"]
    tokens = found["encoder.blocks.0"]  # (2, 9, 10), or one more
    maps, offset = laid_out(tokens), int(pooling == "class")
    assert maps.shape == (2, 10, 3, 3)
    assert maps[1, :, 2, 1].equal(tokens[1, offset + 7])


def test_a_network_without_maps(handle, sample) -> None:
    dense = handle("autoencoder", form="dense")
    with pytest.raises(ConfigError, match="no layer of this network has feature maps"):
        maps_of(dense.model, dense.batch(sample(dense, 2).pixels))


def test_a_layer_is_chosen_by_name_or_place() -> None:
    found = {"stem": torch.zeros(1), "stages.0.0": torch.zeros(1)}
    assert (pick(found, None, -1), pick(found, "stem", -1)) == ("stages.0.0", "stem")
    with pytest.raises(ConfigError, match=r"there is no layer `stam` with feature maps\nhint: did you mean `stem`"):
        pick(found, "stam", 0)


def test_features_are_the_maps_that_differ_most(handle, sample) -> None:
    resnet = handle("resnet")
    images = sample(resnet, 2)
    told = features.look(resnet, images, "stages.1.0")
    with torch.no_grad():
        maps = maps_of(resnet.model, resnet.batch(images.pixels[:1]))[0]["stages.1.0"][0].float()
    assert (told["layer"], len(told["tiles"])) == ("stages.1.0", 8)
    assert told["tiles"][0] == images.pixels[0, 0].tolist()
    assert told["tiles"][1:] == [maps[channel].tolist() for channel in told["channels"]]
    spreads = [maps[channel].var().item() for channel in told["channels"]]
    assert spreads == sorted(spreads, reverse=True)
    assert features.look(resnet, images)["layer"] == told["layers"][0] == "stem"


def test_filters_are_the_first_weights_from_black_to_white(handle) -> None:
    resnet = handle("resnet")
    told, weights = filters.look(resnet), resnet.model.stem.conv.weight[:, 0]
    assert (told["layer"], len(told["tiles"])) == ("stem.conv", 5)
    for tile, weight in zip(told["tiles"], weights):
        grey = torch.tensor(tile).flatten()
        assert (int(grey.min()), int(grey.max())) == (0, 255)
        assert grey.argsort().equal(weight.flatten().argsort())
    coloured = filters.look(handle("resnet", channels=3))["tiles"]
    assert torch.tensor(coloured).shape == (5, 3, 3, 3)
    with pytest.raises(ConfigError, match="has no convolution filters"):
        filters.look(handle("autoencoder", form="dense"))
