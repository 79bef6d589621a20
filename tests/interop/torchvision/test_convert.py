"""Ours as torchvision names it and back, and real weights; test_parity.py has torchvision's own answers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.checkpoint import load_weights, weights_of
from clearformer.data.batch import ImageBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.pickled import read_pickle
from clearformer.interop.torchvision.convert import export_weights, import_weights
from clearformer.models import MODELS
from clearformer.models.build import build_model, model_config

from ...bounds import float32_bound_of

CIFAR = Path(__file__).parents[4] / "shared/data/cifar10-resnet-weights"
TORCHVISION = {"first": 11, "stride": 4, "padding": 2, "local_norm": False}
SMALL: dict[str, dict[str, Any]] = {
    "alexnet": {"kind": "alexnet", "widths": (2, 3, 5, 7, 11), "d_model": 13, "size": 224, **TORCHVISION},
    "vgg": {"kind": "vgg", "depths": (1, 3, 2), "widths": (2, 5, 3), "d_model": 13},
    "vgg-bn": {"kind": "vgg", "depths": (2, 1), "widths": (5, 3), "d_model": 13, "batch_norm": True},
    "googlenet": {"kind": "googlenet", "batch_norm": True, "large": 3, "last_pool": 2, "dropout": 0.2},
    "googlenet-alone": {
        "kind": "googlenet", "batch_norm": True, "large": 3, "last_pool": 2, "dropout": 0.2, "auxiliary": (),
    },
    "resnet": {"kind": "resnet", "block": "basic", "depths": (1, 2, 1), "widths": (5, 7, 11), "stem_width": 5},
    "resnet-deep": {"kind": "resnet", "depths": (2, 1), "widths": (8, 12), "stem_width": 3},
    "resnet-small": {
        "kind": "resnet", "block": "basic", "depths": (1, 2), "widths": (5, 7), "stem_width": 3, "stem": "3x3",
        "shortcut": "padding", "size": 32,
    },
    "vit": {"kind": "vit", "size": 33, "patch": 11, "n_layers": 2, "d_model": 192, "d_ff": 7, "n_heads": 3},
}  # fmt: skip


def build(name: str) -> Any:
    torch.manual_seed(0)
    sizes = {**SMALL[name], "channels": 2, "n_classes": 5}
    return build_model(MODELS.resolve(str(sizes["kind"])).Config(**sizes))


@pytest.mark.parametrize("name", SMALL)
def test_what_goes_over_comes_back(name: str) -> None:
    """Every tensor and, told by the tensors alone, every size."""
    model = build(name)
    theirs = export_weights(weights_of(model), model.config)
    config, ours = import_weights({f"module.{key}": tensor for key, tensor in theirs.items()}, "file")
    assert config == model.config
    assert ours.keys() == weights_of(model).keys()
    assert all(torch.equal(tensor, ours[key]) for key, tensor in weights_of(model).items())


def test_older_names_are_read() -> None:
    model = build("vit")
    theirs = export_weights(weights_of(model), model.config)
    old = {key.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): t for key, t in theirs.items()}
    assert old.keys() != theirs.keys()
    assert import_weights(old, "file")[0] == model.config


@pytest.mark.parametrize(
    ("name", "fields", "named"),
    [
        ("alexnet", {}, "padding"),
        ("googlenet", {}, "batch_norm"),
        ("vgg11-small", {}, "grid"),
        ("plain20", {}, "without shortcuts"),
        ("vit-b-16", {"pooling": "mean"}, "pooling"),
        ("gpt2", {}, "architecture `gpt` cannot be exported"),
    ],
)
def test_what_torchvision_has_not_is_refused(name: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        export_weights({}, model_config(name).changed(**fields))


def test_tensors_that_are_no_network_we_know() -> None:
    model = build("resnet")
    theirs = export_weights(weights_of(model), model.config)
    for lost in ("fc.weight", "conv1.weight"):
        with pytest.raises(CheckpointError, match="does not contain the weights of a supported network"):
            import_weights({name: tensor for name, tensor in theirs.items() if name != lost}, "file")
    with pytest.raises(CheckpointError, match="does not contain the weights of a supported network"):
        import_weights({"weight": torch.ones(3)}, "file")
    with pytest.raises(CheckpointError, match=r"lacks `layer2\.1\.bn2\.bias`"):
        import_weights({name: tensor for name, tensor in theirs.items() if name != "layer2.1.bn2.bias"}, "file")


def resnet_by_hand(weights: dict[str, Tensor], x: Tensor, n: int) -> Tensor:
    """He et al. 2016, section 4.2, from the weights as they were published, with torch's functions alone."""

    def conv(x: Tensor, name: str, norm: str, stride: int = 1) -> Tensor:
        x = F.conv2d(x, weights[f"module.{name}.weight"], stride=stride, padding=1)
        scale, shift, mean, var = (
            weights[f"module.{norm}.{kind}"] for kind in ("weight", "bias", "running_mean", "running_var")
        )
        return F.batch_norm(x, mean, var, scale, shift, eps=1e-5)

    x = F.relu(conv(x, "conv1", "bn1"))
    for stage in (1, 2, 3):
        for i in range(n):
            block, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            y = F.relu(conv(x, f"{block}.conv1", f"{block}.bn1", stride))
            y = conv(y, f"{block}.conv2", f"{block}.bn2")
            if stride == 2:  # every second pixel, and as many channels of zeros as there were, half on either side
                x = x[:, :, ::2, ::2]
                zeros = torch.zeros_like(x[:, : x.size(1) // 2])
                x = torch.cat([zeros, x, zeros], dim=1)
            x = F.relu(x + y)
    return F.linear(x.mean((2, 3)), weights["module.linear.weight"], weights["module.linear.bias"])


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "preset"), [("resnet20-12fca82f.th", "resnet20"), ("resnet56-4bfd9763.th", "resnet56")]
)
@torch.no_grad()
def test_published_weights_for_cifar10(file: str, preset: str) -> None:
    if not (CIFAR / file).exists():
        pytest.skip("needs ../shared/data")
    theirs = read_pickle(CIFAR / file)
    config, weights = import_weights(theirs, file)
    assert config == model_config(preset).changed(preset=None)
    model = build_model(config)
    load_weights(model, weights, file)
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    said, wanted = model.eval()(ImageBatch(pixels)), resnet_by_hand(theirs, pixels, config.depths[0])
    bound = float32_bound_of(model, lambda other: other(ImageBatch(pixels.to(other.classifier.weight.dtype))), 9 * 64)
    assert (said - wanted).abs().max() <= bound  # the longest sum: nine pixels of 64 channels
    exact = {name: tensor.double() for name, tensor in theirs.items()}
    close = model.double()(ImageBatch(pixels.double())) - resnet_by_hand(exact, pixels.double(), config.depths[0])
    assert close.abs().max() <= 1e-9
