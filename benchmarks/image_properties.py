"""Locality and hierarchy of images, on Fashion-MNIST.

    python benchmarks/image_properties.py --data ../shared/data/fashion-mnist [--seeds 3]
    python benchmarks/image_properties.py --draw       only the figure, from the result

Locality: neighbouring pixels are correlated, distant ones less. All pixels of all images are then moved by one fixed
permutation, which keeps every value and destroys the neighbourhoods. A convolutional network and a network of fully
connected layers are trained on both kinds of images, with the same steps.

Hierarchy: a larger view of the image tells more. The convolutional network ends in an average over places, so that its
answer is made of what each place sees: 3, 7, 15 or 31 pixels across with 1, 2, 3 or 4 convolutions of stride 2.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from provenance import RESULTS, record, stamp
from torch import Tensor, nn

from clearformer.data.files.arrays import read_idx
from clearformer.plots.style import BLUE, ORANGE, saved_figure
from clearformer.training.optim import OptimConfig

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "image-properties.png"

N, CLASSES, WIDTH = 28, 10, 32
TRAIN, ROWS, STEPS, RATE = 20_000, 64, 800, 2e-3
DISTANCES = (1, 2, 4, 8, 14)
DEPTHS = {3: 1, 7: 2, 15: 3, 31: 4}  # pixels across -> convolutions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="folder of Fashion-MNIST")
    what.add_argument("--draw", action="store_true", help="only draw the figure, from the result")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "image-properties.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    if not args.draw:
        results = measure(args.data, args.seeds)
        record({**results, **stamp("python benchmarks/image_properties.py --data FASHION-MNIST")}, args.out)
    plot(json.loads(args.out.read_text(encoding="utf-8")), args.figure)


def measure(data: Path, seeds: int) -> dict[str, Any]:
    train, test = (load(data, split) for split in ("train", "t10k"))
    train = (train[0][:TRAIN], train[1][:TRAIN])
    order = torch.randperm(N * N, generator=torch.Generator().manual_seed(0))
    kinds: dict[str, Callable[[Tensor], Tensor]] = {
        "pixels_in_place": lambda x: x,
        "pixels_moved": partial(move, order),
    }
    correlation = {name: {str(d): neighbours(change(test[0]), d) for d in DISTANCES} for name, change in kinds.items()}
    accuracy = {
        f"{network}.{name}": [
            learn(build, (change(train[0]), train[1]), (change(test[0]), test[1]), seed) for seed in range(seeds)
        ]
        for network, build in (("convolutions", partial(convolutions, 3)), ("fully_connected", connected))
        for name, change in kinds.items()
    }
    views = {
        str(pixels): [learn(partial(convolutions, depth), train, test, seed) for seed in range(seeds)]
        for pixels, depth in DEPTHS.items()
    }
    locality: dict[str, dict[str, float]] = {}
    for key, values in accuracy.items():
        network, name = key.split(".")
        locality.setdefault(network, {})[name] = fmean(values)
    return {
        "correlation": correlation,
        "locality": locality,
        "locality_by_seed": accuracy,
        "hierarchy": {pixels: fmean(values) for pixels, values in views.items()},
        "hierarchy_by_seed": views,
    }


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Correlation by distance, accuracy with pixels in place and moved, and accuracy by the size of the view."""
    kinds = (("pixels_in_place", "in place", BLUE, -0.1), ("pixels_moved", "moved", ORANGE, 0.1))
    with saved_figure(path, 7.6, 2.9) as figure:
        near, local, views = figure.subplots(1, 3)
        for name, label, colour, _ in kinds:
            curve = results["correlation"][name]
            near.plot([int(d) for d in curve], list(curve.values()), "o-", color=colour, label=f"pixels {label}", ms=4)
        near.set(title="Correlation of two pixels", xlabel="distance in pixels", ylim=(0, 1))
        for name, _, colour, shift in kinds:
            for x, network in enumerate(results["locality"]):
                dots(local, x + shift, results["locality_by_seed"][f"{network}.{name}"], colour)
        local.set_xticks(range(len(results["locality"])), [name.replace("_", "\n") for name in results["locality"]])
        local.set(title="Test accuracy by network", xlim=(-0.5, len(results["locality"]) - 0.5))
        for x, values in enumerate(results["hierarchy_by_seed"].values()):
            dots(views, x, values, BLUE)
        views.set_xticks(range(len(results["hierarchy_by_seed"])), list(results["hierarchy_by_seed"]))
        views.set(title="Test accuracy by view", xlabel="pixels that a place sees across", ylim=(0.4, 1))
        for ax in figure.axes:
            ax.grid(axis="y")
        figure.legend(*near.get_legend_handles_labels(), loc="outside upper center", ncols=2)


def dots(ax: Any, x: float, seeds: list[float], colour: str) -> None:
    """The mean as a dot, each seed as a dash."""
    ax.plot([x] * len(seeds), seeds, "_", color=colour, markersize=9)
    ax.plot(x, fmean(seeds), "o", color=colour, markersize=5)


def load(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return images (B, 1, N, N), of mean 0 and deviation 1, and their classes (B,)."""
    images = torch.as_tensor(read_idx(folder / f"{split}-images-idx3-ubyte.gz").copy()).float()[:, None]
    classes = torch.as_tensor(read_idx(folder / f"{split}-labels-idx1-ubyte.gz").copy()).long()
    return (images - images.mean()) / images.std(), classes


def move(order: Tensor, images: Tensor) -> Tensor:
    """Move the pixels of every image by the same permutation."""
    return images.flatten(1)[:, order].view(images.shape)


def neighbours(images: Tensor, distance: int) -> float:
    """Return the correlation of pixels `distance` apart in a row, after the mean image has been subtracted."""
    images = images - images.mean(0)
    one, other = images[..., :-distance].flatten(), images[..., distance:].flatten()
    return float(F.cosine_similarity(one, other, dim=0))


def convolutions(depth: int) -> nn.Module:
    """Build convolutions of stride 2, an average over places, and a head."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Conv2d(WIDTH if i else 1, WIDTH, 3, stride=2, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, CLASSES))


def connected() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(N * N, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def learn(build: Callable[[], nn.Module], train: Any, test: Any, seed: int) -> float:
    """Train a network; returns its accuracy on the test images."""
    torch.manual_seed(seed)
    network, (images, classes) = build(), train
    optimizer = OptimConfig(lr=RATE).build(network)
    for _ in range(STEPS):
        rows = torch.randint(len(images), (ROWS,))
        loss = F.cross_entropy(network(images[rows]), classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        predicted = torch.cat([network(some).argmax(1) for some in test[0].split(1000)])
    return float((predicted == test[1]).float().mean())


if __name__ == "__main__":
    main()
