"""Convolutions by numbers: sizes, AlexNet's table, VGG, the inception sums, ResNet, pooling."""

from collections.abc import Iterator

import torch
from torch import nn

from clearformer.data.batch import batch_class
from clearformer.layers.conv import Conv
from clearformer.layers.geometry import ReceptiveField, output_size, same_padding
from clearformer.lens.summary import LayerSummary, summarize
from clearformer.models.alexnet import AlexNet
from clearformer.models.build import build_model, model_config
from clearformer.worked.example import Figure, worked
from clearformer.worked.sizes import count, millions

COURSE = "deep-learning course"


def layers_of(preset: str) -> list[LayerSummary]:
    """Return the layers of an image network with their sizes and costs; nothing is allocated."""
    config = model_config(preset)
    with torch.device("meta"):
        model = build_model(config)
        return summarize(model.eval(), batch_class(model).blank(1, config.size, config.channels))


@worked("sizes", "output size, padding, stride", f"{COURSE}, 20/03 and 23/03, l.417-490", output_size, same_padding)
def sizes() -> Iterator[Figure]:
    yield Figure("N = 7, F = 3, stride 1: N − F + 1", output_size(7, 3), 5)
    yield Figure("N = 7, F = 3, stride 2: (N − F)/s + 1", output_size(7, 3, 2), 3)
    yield Figure("padding that keeps n, f = 5: (f − 1)/2", same_padding(5), 2)
    yield Figure("padding that keeps n = 8, s = 2, f = 4: (ns − (n+s) + f)/2", same_padding(4, 2, 8), (16 - 10 + 4) / 2)
    slip = "(n + 2p − f)/s + 1; the 1 is not divided by the stride"
    yield Figure("n = 7, p = 1, f = 3, s = 2: output", output_size(7, 3, 2, 1), (7 + 2 - 3 + 1) / 2, 4, slip)


@worked("borders", "padding: borders are under-represented", f"{COURSE}, 23/03, l.474-475", Conv, same_padding)
def borders() -> Iterator[Figure]:
    """How many outputs of a 3×3 filter read a pixel of a 7×7 image: the gradient of their sum, with weights of 1."""
    for padding, corner in ((0, 1), (same_padding(3), 4)):
        conv, image = (
            Conv(1, 1, 3, padding=padding, norm=False, relu=False),
            torch.zeros(1, 1, 7, 7, requires_grad=True),
        )
        nn.init.ones_(conv.conv.weight)
        (uses,) = torch.autograd.grad(conv(image).sum(), image)
        here = [uses[0, 0, 0, 0].item(), uses[0, 0, 3, 3].item()]
        yield Figure(f"outputs that read the corner and the centre, padding {padding}", here, expected=[corner, 9])


@worked("alexnet", "AlexNet, layer by layer", f"{COURSE}, 24/03, l.500-571", AlexNet, summarize)
def alexnet() -> Iterator[Figure]:
    layers = {layer.name: layer for layer in layers_of("alexnet")}
    outputs = {"conv1": [96, 55, 55], "pool1": [96, 27, 27], "conv2": [256, 27, 27], "pool2": [256, 13, 13],
               "conv3": [384, 13, 13], "conv4": [384, 13, 13], "conv5": [256, 13, 13],
               "pool5": [256, 6, 6]}  # fmt: skip
    weights = {"conv1": 11 * 11 * 3 * 96, "conv2": 5 * 5 * 96 * 256, "conv3": 3 * 3 * 256 * 384,
               "conv4": 3 * 3 * 384 * 384, "conv5": 3 * 3 * 384 * 256}  # fmt: skip
    for name, shape in outputs.items():
        layer = next(layer for key, layer in layers.items() if key.startswith(f"layers.{name}"))
        yield Figure(f"{name}: channels, rows, columns", layer.output[1:], shape)
        if name in weights:
            yield Figure(
                f"{name}: weights", layer.parameters - layer.output[1], weights[name]
            )  # less a bias per filter
    slip = "(27 − 5 + 2·2)/1 + 1 = 27; their sum (27 − 5 + 1)/1 + 1 is 24"
    yield Figure("conv2: rows, from their formula", output_size(27, 5, 1, 2), (27 - 5 + 1) // 1 + 1, 27, slip)
    first, second, third = (n - bias for n, bias in zip(dense_parameters(), (4096, 4096, 1000)))
    yield Figure("dense 1: weights", first, 4096 * 4096, 9216 * 4096, "it reads 6×6×256 = 9216 values")
    yield Figure("dense 2 and 3: weights", [second, third], [4096 * 4096, 4096 * 1000])
    model = build_on_meta("alexnet")
    yield Figure("all parameters", count(model), 60_000_000, 62_378_344, "by their own table, without groups")
    yield Figure("all parameters with the paper's groups", grouped(model), 60_000_000, tolerance=0.02)


def build_on_meta(preset: str) -> nn.Module:
    with torch.device("meta"):
        model: nn.Module = build_model(model_config(preset))
    return model


def dense_parameters() -> list[int]:
    """Return the parameters of the three dense layers of AlexNet."""
    return [layer.parameters for layer in layers_of("alexnet") if layer.parameters and "conv" not in layer.name]


def grouped(model: nn.Module) -> int:
    """Count AlexNet as in its paper: filters of the second, fourth and fifth convolution see half of the channels."""
    halves = ("layers.conv2", "layers.conv4", "layers.conv5")
    return sum(
        p.numel() // 2 if name.startswith(halves) and p.dim() == 4 else p.numel()
        for name, p in model.named_parameters()
    )


@worked("vgg", "VGG: smaller filters, deeper", f"{COURSE}, 24/03, l.577-581", ReceptiveField, build_model)
def vgg() -> Iterator[Figure]:
    yield Figure("parameters of VGG-16 in millions", millions("vgg16"), 138)
    two, three = ReceptiveField().after(3).after(3), ReceptiveField().after(3).after(3).after(3)
    yield Figure("pixels that two and three filters of 3×3 see", [two.size, three.size], expected=[5, 7])
    stack, one = (sum(count(nn.Conv2d(1, 1, n, bias=False)) for n in sizes) for sizes in ((3, 3, 3), (7,)))
    yield Figure("weights per pair of channels: three of 3×3, one of 7×7", [stack, one], expected=[27, 49])
    last = [layer for layer in layers_of("vgg16") if "stages" in layer.name][-1]
    stages = [(3, 1)] * 2 + [(2, 2)] + [(3, 1)] * 2 + [(2, 2)] + ([(3, 1)] * 3 + [(2, 2)]) * 3
    field = ReceptiveField()
    for size, stride in stages:
        field = field.after(size, stride)
    yield Figure("pixels per side that the last map sees", last.receptive_field, expected=field.size)


@worked("inception", "naive inception, and with bottlenecks", f"{COURSE}, 25/03, l.595-631", summarize)
def inception() -> Iterator[Figure]:
    naive, bottleneck = layers_of("inception-naive"), layers_of("inception-bottleneck")
    yield Figure("output of the naive block", naive[-1].output[1], 128 + 192 + 96 + 256)
    terms = [28 * 28 * 256 * n for n in (1 * 1 * 128, 3 * 3 * 192, 5 * 5 * 96)]
    yield Figure(
        "multiplications of the three convolutions",
        [layer.multiply_adds for layer in naive if layer.multiply_adds],
        terms,
    )
    total = sum(layer.multiply_adds for layer in naive)
    yield Figure("naive: all multiplications", total, 854_000_000, tolerance=1e-3)
    six = [28 * 28 * n for n in (256 * 128, 256 * 64, 256 * 64, 64 * 9 * 192, 64 * 25 * 96, 256 * 64)]
    here = sum(layer.multiply_adds for layer in bottleneck)
    slip = "their six terms sum to 271 million"
    yield Figure("with bottlenecks: all multiplications", here, 358_000_000, sum(six), slip, tolerance=1e-3)
    yield Figure(
        "floating-point operations of the naive block", 2 * total, total, 2 * total,
        "a multiplication and an addition are two operations; the notes count multiplications and call them FLOPs",
    )  # fmt: skip


@worked("resnet", "ResNet-110 has 1.7 million parameters", f"{COURSE}, 25/03, l.649", build_model)
def resnet() -> Iterator[Figure]:
    yield Figure("parameters in millions", round(count(build_on_meta("resnet110")) / 1e6, 1), 1.7)


@worked("max-pool", "∂ max(x₁, x₂)/∂x₁ is 1 if x₁ > x₂, else 0", f"{COURSE}, 23/03, l.492-496", AlexNet)
def max_pool() -> Iterator[Figure]:
    for first, second, notes in ((5.0, 2.0, [1.0, 0.0]), (2.0, 5.0, [0.0, 1.0])):
        x = torch.tensor([[[[first, second]]]], requires_grad=True)
        (gradient,) = torch.autograd.grad(nn.MaxPool2d((1, 2))(x).sum(), x)
        yield Figure(f"gradient at ({first:g}, {second:g})", gradient.flatten().tolist(), notes)


@worked("shifts", "a convolution moves along with its image", f"{COURSE}, 20/03 and 23/03, l.448-462", Conv)
def shifts() -> Iterator[Figure]:
    """One pixel to the right, stride 1, borders left out."""
    torch.manual_seed(0)
    conv, image = Conv(1, 1, 3, padding=0, norm=False).double(), torch.randn(1, 1, 9, 12, dtype=torch.float64)
    with torch.no_grad():
        before, after = conv(image[..., :-1]), conv(image[..., 1:])
    moved = round((after[..., :-1] - before[..., 1:]).abs().max().item(), 12)
    yield Figure("equivariant: f(g(I)) differs from g(f(I)) by", moved, 0.0)
    same = torch.allclose(after, before)
    slip = "never invariant: the result moves along; at stride 1 it is exactly, not partially, equivariant"
    yield Figure("invariant: f(g(I)) = f(I)", str(same), "True", "False", slip)
