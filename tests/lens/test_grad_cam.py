import pytest
import torch

from clearformer.errors import ConfigError
from clearformer.lens.grad_cam import explain, grad_cam
from clearformer.lens.maps import maps_of


def test_under_a_mean_it_is_the_weights_of_the_class_times_the_maps(handle, sample) -> None:
    """A ResNet's head reads means over places: CAM (Zhou et al. 2016), divided by their number."""
    resnet = handle("resnet")
    batch = resnet.batch(sample(resnet, 5).pixels)
    heat, scores, layer = grad_cam(resnet.model, batch)
    maps = maps_of(resnet.model, batch)[0]["stages.1.0"]
    weights = resnet.model.classifier.weight[scores.argmax(1)]  # (B, C)
    expected = torch.einsum("bc,bcyx->byx", weights, maps).relu() / (15 * 15)
    assert layer == "stages.1.0"
    torch.testing.assert_close(heat, expected)
    assert scores.equal(resnet.model(batch))
    assert heat.any()


def test_a_deeper_look_by_name(handle, sample) -> None:
    """At the stem the slope differs from place to place: the mean of it is what torch says."""
    resnet = handle("resnet")
    batch = resnet.batch(sample(resnet, 2).pixels)
    heat, _, _ = grad_cam(resnet.model, batch, "stem")
    maps, hidden = maps_of(resnet.model, batch)
    [slope] = torch.autograd.grad(resnet.model.head(hidden).amax(1).sum(), maps["stem"])
    torch.testing.assert_close(heat, (slope.mean((2, 3))[..., None, None] * maps["stem"]).sum(1).relu())


def test_a_transformers_tokens_are_maps(handle, sample) -> None:
    vit = handle("vit", pooling="mean")
    told = explain(vit, sample(vit, 2))
    assert (told["layer"], torch.tensor(told["heat"]).shape) == ("encoder.blocks.1", (2, 3, 3))
    label, share = told["captions"][0].split()
    assert label in vit.classes
    assert share.endswith("%")


def test_an_autoencoder_has_no_classes(handle, sample) -> None:
    coder = handle("autoencoder")
    with pytest.raises(ConfigError, match="autoencoder is not an image classifier"):
        explain(coder, sample(coder, 1))


def test_evidence_for_a_class_that_is_not_predicted(handle, sample) -> None:
    resnet = handle("resnet")
    one = sample(resnet, 3)
    batch = resnet.batch(one.pixels)
    for k, label in enumerate(resnet.classes):
        heat, scores, _ = grad_cam(resnet.model, batch, k=k)
        maps = maps_of(resnet.model, batch)[0]["stages.1.0"]
        expected = torch.einsum("c,bcyx->byx", resnet.model.classifier.weight[k], maps).relu() / (15 * 15)
        torch.testing.assert_close(heat, expected)
        told = explain(resnet, one, label=label)
        torch.testing.assert_close(torch.tensor(told["heat"], dtype=heat.dtype), heat)
        assert told["captions"] == [f"{label} {p:.0%}" for p in scores.softmax(-1)[:, k].tolist()]
    with pytest.raises(ConfigError, match="resnet has no class `bat`"):
        explain(resnet, one, label="bat")
