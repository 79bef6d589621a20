"""What a convolution does: it finds a pattern, moves with the image, and is better learned than prescribed.

    cos(k, x) = k · x / (|k| |x|)          1 only where the patch x is the kernel, up to a factor: a matched filter
    f(shift x) = shift f(x)                equivariance, exact at stride 1
    f(turn x) = turn f(x)                  for turns by 90° only if each kernel is there in all four turns, which then
                                           exchange their channels                            Cohen & Welling 2016
    ∂ max(x_1, x_2) / ∂x_1 = [x_1 > x_2]   the whole gradient of a maximum goes to the largest input

Images are noisy gratings (batch_norm.py) and noise with a pattern in it. Three seeds where a network is trained.
"""

from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.batch_norm import CLASSES, gratings
from clearformer.claims.panels import panel
from clearformer.training.optim import OptimConfig

SIZE, KERNEL, PICTURES, BRIGHT = 24, 5, 200, 20.0
NOISES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
SHIFTS = tuple(range(5))
POOLS: dict[str, Callable[..., Tensor]] = {"max": F.max_pool2d, "average": F.avg_pool2d}
WIDTH, ROWS, STEPS, RATE, SEEDS, TESTS = 8, 64, 150, 0.1, 3, 1024


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot convolutions` shows."""
    generator = torch.Generator().manual_seed(seed)
    shares = find_pattern(generator)
    moves = equivariance(generator)
    pooled = pooling_shifts(generator)
    trained = {name: [learn(name, seed + k) for k in range(SEEDS)] for name in FORMS}
    accuracy = {name: fmean(values) for name, values in trained.items()}
    return {
        "title": f"A bright patch misleads a plain product ({shares['product'][1]:.0%} found), not a cosine "
        f"({shares['cosine'][1]:.0%}); gratings: {accuracy['learned']:.0%} with learned kernels, "
        f"{accuracy['Sobel and blur']:.0%} with Sobel and blur",
        "seed": seed,
        "seeds": SEEDS,
        "found": shares,
        "equivariance": moves,
        "turns": turns(generator),
        "gradient_of_max": torch.autograd.functional.jacobian(torch.max, torch.tensor([1.0, 3.0, 2.0])).tolist(),
        "pooling": pooled,
        "accuracy": accuracy,
        "accuracy_by_seed": trained,
        "panels": [
            panel("pattern found, beside a bright patch", "noise × 100", "share of pictures", shares,
                  [round(100 * noise) for noise in NOISES]),
            panel("f(shift x) against shift f(x)", "shift, pixels", "relative difference", moves, SHIFTS),
            panel("pooled features of a shifted image", "shift, pixels", "relative difference", pooled, SHIFTS),
            panel("test accuracy, by seed", "seed", "accuracy", trained, list(range(SEEDS))),
        ],
    }  # fmt: skip


def find_pattern(generator: torch.Generator) -> dict[str, list[float]]:
    """Return the share of pictures, by noise, in which the largest response is at the place of the pattern.

    Somewhere else in the picture there is a patch of one bright colour.
    """
    kernel = torch.randn(1, 1, KERNEL, KERNEL, generator=generator)
    shares: dict[str, list[float]] = {"product": [], "cosine": []}
    for noise in NOISES:
        pictures = noise * torch.randn(PICTURES, 1, SIZE, SIZE, generator=generator)
        places = torch.randint(SIZE - KERNEL + 1, (PICTURES, 2), generator=generator)
        bright = torch.randint(SIZE - KERNEL + 1, (PICTURES, 2), generator=generator)
        for picture, (r, c), (y, x) in zip(pictures, places.tolist(), bright.tolist()):
            hidden = kernel[0, 0] + picture[0, r : r + KERNEL, c : c + KERNEL]
            picture[0, y : y + KERNEL, x : x + KERNEL] += BRIGHT
            picture[0, r : r + KERNEL, c : c + KERNEL] = hidden
        product = F.conv2d(pictures, kernel)
        lengths = F.conv2d(pictures.square(), torch.ones_like(kernel)).sqrt()
        right = places[:, 0] * (SIZE - KERNEL + 1) + places[:, 1]
        for name, response in (("product", product), ("cosine", product / (lengths * kernel.norm() + 1e-9))):
            shares[name].append(float((response.flatten(1).argmax(1) == right).float().mean()))
    return shares


def equivariance(generator: torch.Generator) -> dict[str, list[float]]:
    """Return |f(shift x) − shift f(x)| / |f(x)| of convolutions with circular padding, by shift and stride."""
    image = torch.randn(1, 1, SIZE, SIZE, generator=generator, dtype=torch.float64)
    kernel = torch.randn(4, 1, 3, 3, generator=generator, dtype=torch.float64)

    def f(x: Tensor, stride: int) -> Tensor:
        return F.relu(F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), kernel, stride=stride))

    lines = {}
    for stride in (1, 2):
        still = f(image, stride)
        lines[f"stride {stride}"] = [
            float((f(image.roll(d, 3), stride) - still.roll(round(d / stride), 3)).norm() / still.norm())
            for d in SHIFTS
        ]
    return lines


def turns(generator: torch.Generator) -> dict[str, float]:
    """Return |f(turn x) − turn f(x)| / |f(x)| for a turn by 90°: of a convolution, and with kernels in four turns."""
    image = torch.randn(1, 1, SIZE, SIZE, generator=generator, dtype=torch.float64)
    kernel = torch.randn(1, 1, 3, 3, generator=generator, dtype=torch.float64)
    group = torch.cat([kernel.rot90(k, (2, 3)) for k in range(4)])  # (4, 1, 3, 3)

    def error(weight: Tensor) -> float:
        still, turned = F.conv2d(image, weight, padding=1), F.conv2d(image.rot90(1, (2, 3)), weight, padding=1)
        expected = still.rot90(1, (2, 3)).roll(1, 1)  # channel k of the turned image is channel k − 1, turned
        return float((turned - expected).norm() / still.norm())

    return {"one kernel": error(kernel), "four turns of it": error(group)}


def pooling_shifts(generator: torch.Generator) -> dict[str, list[float]]:
    """Return how much the pooled features of gratings change when the image is shifted, by kind of pooling."""
    images, _ = gratings(256, generator)
    kernel = torch.randn(WIDTH, 1, 3, 3, generator=generator)
    lines: dict[str, list[float]] = {}
    maps = [F.relu(F.conv2d(images.roll(d, 3), kernel, padding=1)) for d in SHIFTS]
    for name, pool in POOLS.items():
        still, *_ = pooled = [pool(one, 3) for one in maps]
        lines[name] = [float((moved - still).norm() / still.norm()) for moved in pooled]
    return lines


SOBEL = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]) / 4
BLUR = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
FORMS = ("learned", "Sobel and blur", "random", "average pool", "pool first")


class Small(nn.Module):
    """One convolution of eight kernels, relu, a pool of 3 × 3, and a linear head. `form` says what is different."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.conv = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH * 9, CLASSES)
        if form == "Sobel and blur":
            kernels = [SOBEL, SOBEL.T, -SOBEL, -SOBEL.T, BLUR, -BLUR, SOBEL + SOBEL.T, SOBEL - SOBEL.T]
            self.conv.weight.data = torch.stack(kernels)[:, None].clone()
        if form in ("Sobel and blur", "random"):
            self.conv.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        pool = POOLS["average" if self.form == "average pool" else "max"]
        if self.form == "pool first":
            return self.head(F.relu(self.conv(pool(images, 3))).flatten(1))
        return self.head(pool(F.relu(self.conv(images)), 3).flatten(1))


def learn(form: str, seed: int) -> float:
    """Train on gratings; returns the accuracy on others."""
    torch.manual_seed(seed)
    model, generator = Small(form), torch.Generator().manual_seed(seed)
    optimizer = OptimConfig(kind="momentum", lr=RATE).build(model)
    for _ in range(STEPS):
        images, classes = gratings(ROWS, generator)
        loss = F.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        images, classes = gratings(TESTS, generator)
        return float((model(images).argmax(1) == classes).float().mean())
