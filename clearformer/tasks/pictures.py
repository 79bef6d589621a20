"""Pictures to a network: what all trainings on them share, whatever they are judged by."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import nn

from clearformer.checkpoint import RunFolder, write_json
from clearformer.data.batch import ImageBatch
from clearformer.data.collate import in_groups
from clearformer.data.fitting import Fitted, fit_all
from clearformer.data.image_store import ImageStore, ImageWriter
from clearformer.data.images import ImageCorpora
from clearformer.data.labels import number_classes
from clearformer.data.pixels import ImageConfig
from clearformer.errors import DataError
from clearformer.loading.handles import load
from clearformer.prepare import CLASSES, is_prepared
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast

NAMED = 5  # damaged files that are named; of the others there is a count


class PictureTask:
    metrics: tuple[str, ...]
    unit = "images"

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        image, model = recipe.image or ImageConfig(), recipe.model
        image = image.changed(size=image.size or model.size, channels=image.channels or model.channels)
        self.recipe = replace(recipe, image=image).with_model(size=image.size, channels=image.channels)
        self.run = run
        self.facts: dict[str, Any] = {}

    def prepare(self, base: Any) -> None:
        """`base`, a model to start from, has no say: its [image] is in the recipe already."""
        if is_prepared(self.run):
            return
        classes = self.find_classes()
        self.run.path.mkdir(parents=True, exist_ok=True)
        write_json(self.run.path / CLASSES, classes)
        prepare_images(self.recipe, self.run, classes)

    def open(self) -> Recipe:
        torch.backends.cudnn.benchmark = not self.recipe.train.deterministic  # batches of one size: worth a search
        self.classes: list[str] = json.loads((self.run.path / CLASSES).read_text(encoding="utf-8"))
        self.facts = {"classes": self.classes}
        image, train = self.recipe.image, self.store("train")
        assert image is not None
        image = image.changed(mean=image.mean or train.mean, std=image.std or train.std)
        self.recipe = self.fitted(replace(self.recipe, image=image))
        return self.recipe

    def find_classes(self) -> list[str]:
        """What the pictures show. What cannot be learnt from is refused here, before any of them is decoded."""
        raise NotImplementedError

    def fitted(self, recipe: Recipe) -> Recipe:
        """The recipe with what the classes decide about the model."""
        return recipe

    def store(self, split: str) -> ImageStore:
        return ImageStore(self.run.data / f"{split}.safetensors")

    def describe(self, world: World) -> str:
        store, steps = self.store("train"), self.steps(world)
        classes = f"{len(self.classes)} classes, " if len(self.classes) > 1 else ""
        return (
            f"{len(store):,} training pictures of {' × '.join(map(str, store.pixels.shape[:0:-1]))}, "
            f"{classes}{steps.count(0):,} steps an epoch"
        )

    def steps(self, world: World) -> Steps:
        train = self.recipe.train
        return ImageSteps(self.store("train"), train.tokens, train.seed, train.accumulation * world.size)

    def validation(self, device: torch.device) -> Validate:
        store = self.store("valid")

        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, self.recipe.train.precision):
                scores = self.measure(model, store)
            return {name: scores[name] for name in self.metrics}

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not (self.run.data / "test.safetensors").exists():
            return {}
        scores = self.measure(load(self.run.path, str(device)).model, self.store("test"))
        told = ", ".join(f"{name} {scores[name]:.4f}" for name in self.metrics)
        console.print(f"test: {told} on {scores['images']:,} pictures")
        return scores

    def measure(self, model: nn.Module, store: ImageStore) -> dict[str, Any]:
        """The metrics, and how many `images` they are of."""
        raise NotImplementedError


def prepare_images(recipe: Recipe, run: RunFolder, classes: list[str]) -> None:
    """Every picture decoded once, fitted, and laid with its split; what cannot be read is named and left out."""
    data, image = recipe.data, recipe.image
    assert image is not None
    assert image.size is not None
    assert image.channels is not None
    broken: list[str] = []
    with ExitStack() as stack:
        writers = {}
        for split in ("train", "valid", "test"):  # closed the other way round: once train is there, everything is
            writer = ImageWriter(run.data / f"{split}.safetensors", image.channels, image.size)
            writers[split] = stack.enter_context(writer)
        for split in ("train", "valid", "test"):
            if (source := data.source(split)) is None:
                continue
            pictures = fit_all(source.read(), image, broken)
            for own, found in divide(pictures, data) if split == "train" else zip(repeat(split), pictures):
                [k] = number_classes([found.label], classes, split)
                writers[own].add(found.pixels, k)
        tell_broken(broken)
        for split in ("train", "valid"):
            if not len(writers[split]):
                raise DataError(f"there are no pictures for {split}", f"give more, or some for [data] {split}")
    console.print(", ".join(f"{split}: {len(writer):,} pictures" for split, writer in writers.items() if len(writer)))


def divide(pictures: Iterable[Fitted], data: ImageCorpora) -> Iterator[tuple[str, Fitted]]:
    """Pictures of the training source, each with the split that it belongs to, by its place.

    If that leaves none for validation, they are few: then the first by place of every class is held out, if it has two.
    """
    rest, waiting, spared = iter(pictures), list[Fitted](), set[float]()
    if data.valid is None:
        for picture in rest:
            waiting.append(picture)
            if data.split_of(picture.place) == "valid":
                break
        else:
            places: dict[str, set[float]] = {}
            for picture in waiting:
                if data.split_of(picture.place) == "train":
                    places.setdefault(picture.label, set()).add(picture.place)
            spared = {min(own) for own in places.values() if len(own) > 1}
    for picture in chain(waiting, rest):
        yield "valid" if picture.place in spared else data.split_of(picture.place), picture


def tell_broken(broken: list[str]) -> None:
    for problem in broken[:NAMED]:
        console.print(f"left out: {problem}")
    if len(broken) > NAMED:
        console.print(f"left out: {len(broken) - NAMED:,} more, {len(broken):,} in all")


class ImageSteps:
    """The trainer's view of pictures: batches of one size, in an order that is a function of (seed, epoch).

    What does not fill a batch at the end of an epoch is left for the next, which has another order: a batch norm
    learns nothing from a batch of two or three.
    """

    def __init__(self, store: ImageStore, n_rows: int, seed: int, group: int) -> None:
        self.store, self.n_rows, self.seed, self.group = store, min(n_rows, len(store)), seed, group
        self.plan = lru_cache(maxsize=2)(lambda epoch: in_groups(self.epoch(epoch), group))

    def epoch(self, epoch: int) -> list[np.ndarray]:
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.store))
        whole = len(order) // self.n_rows * self.n_rows
        return list(order[:whole].reshape(-1, self.n_rows))

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> tuple[list[ImageBatch], int]:
        group = self.plan(epoch)[position]
        return [self.store.batch(rows) for rows in world.share(group)], sum(map(len, group))
