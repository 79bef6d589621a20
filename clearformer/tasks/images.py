"""Images to a network: what all tasks on them share, whatever they are judged by.

learn    decodes every image once, into files that do not appear before `store` puts them in place: the mean and
         standard deviation of their pixels are part of the final recipe
"""

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import ImageBatch
from clearformer.data.collate import in_groups
from clearformer.data.fitting import CHUNK, Fitted, fit_all
from clearformer.data.image_store import ImageStore, ImageWriter
from clearformer.data.images import ImageCorpora
from clearformer.data.labels import number_classes
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError, DataError
from clearformer.tables import Tables
from clearformer.tasks import IMAGES, Given
from clearformer.tasks.auto.images import plan_finetune_images, plan_images
from clearformer.tasks.task import Plan, Pretrained, Request, Task, refuse_options
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import console

NAMED = 5  # damaged files that are named; the others are counted


class ImageBatches:
    """Batches of one size, in an order that is a function of (seed, epoch).

    Images that do not fill a batch at the end of an epoch are left for the next, which has another order: a batch norm
    learns nothing from a batch of two or three.
    """

    is_drawn = False

    def __init__(self, store: ImageStore, n_rows: int, seed: int) -> None:
        self.store, self.n_rows, self.seed = store, min(n_rows, len(store)), seed

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.store))
        whole = len(order) // self.n_rows * self.n_rows
        return in_groups(list(order[:whole].reshape(-1, self.n_rows)), group)

    def batch(self, rows: np.ndarray, key: tuple[int, int] = (0, 0)) -> ImageBatch:
        return self.store.batch(rows)

    def count(self, rows: np.ndarray) -> int:
        return len(rows)

    def in_order(self) -> Iterator[ImageBatch]:
        """Every image once, as stored."""
        for start in range(0, len(self.store), self.n_rows):
            yield self.store.batch(np.arange(start, min(start + self.n_rows, len(self.store))))


class ImageTask(Task):
    flag = IMAGES
    unit = "images"
    n_tokenizers = 0
    has_classes = True

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        """The sizes of images and of the model agree from the start: [image] decides, and else [model]."""
        image, model = recipe.image or ImageConfig(), recipe.model
        image = image.changed(size=image.size or model.size, channels=image.channels or model.channels)
        super().__init__(recipe.with_tables(image=image).with_model(size=image.size, channels=image.channels), run)
        self.writers: dict[str, ImageWriter] = {}
        self.statistics: tuple[tuple[float, ...], tuple[float, ...]]
        """Mean and standard deviation of each channel of the training images."""

    @classmethod
    def plan(cls, request: Request) -> Plan:
        return plan_images(request)

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        return plan_finetune_images(request, start, old)

    # --- from files to a run folder

    def learn(self, base: Pretrained | None, survey: Any) -> None:
        """`base` changes nothing: its [image] is in the recipe already."""
        self.classes = self.read_classes()
        self.decode()
        self.statistics = self.writers["train"].statistics

    @abstractmethod
    def read_classes(self) -> list[str]:
        """The classes of the data. Data that nothing can be learnt from is refused here, before any is decoded."""

    def decode(self) -> None:
        """Decode all splits into files that do not appear before `store`; a task that ends without it removes them."""
        assert self.classes is not None
        self.writers = decode_splits(self.recipe.data, self.image, self.classes, self.path)
        weakref.finalize(self, discard, list(self.writers.values()))

    @property
    def image(self) -> ImageConfig:
        assert self.recipe.image is not None, "written by __init__"
        return self.recipe.image

    def settle(self) -> Tables:
        mean, std = self.statistics
        image = self.image.changed(mean=self.image.mean or mean, std=self.image.std or std)
        return self.recipe.with_tables(image=image)

    def store(self) -> None:
        if not self.writers:
            self.decode()
        counts = [f"{split}: {len(writer):,} images" for split, writer in self.writers.items() if len(writer)]
        with ExitStack() as stack:  # left in reverse order, so that train appears last
            for writer in self.writers.values():
                stack.enter_context(writer)
        console.print(", ".join(counts))

    def load(self) -> None:
        super().load()
        train = ImageStore(self.path("train"))
        self.statistics = train.mean, train.std

    # --- in training

    def split(self, name: str) -> ImageBatches:
        return ImageBatches(ImageStore(self.path(name)), self.recipe.train.tokens, self.recipe.train.seed)

    def steps(self, world: World) -> Steps:
        """Batches of one size are worth cuDNN's search for the fastest kernels, for as long as the steps are in use."""
        steps, cudnn = super().steps(world), torch.backends.cudnn
        if not self.recipe.train.deterministic:
            weakref.finalize(steps, setattr, cudnn, "benchmark", cudnn.benchmark)
            cudnn.benchmark = True
        return steps

    def describe(self) -> str:
        store = self.split("train").store
        classes = f", {len(self.classes)} classes" if self.classes and len(self.classes) > 1 else ""
        return f"{len(store):,} training images of {' × '.join(map(str, store.pixels.shape[:0:-1]))}{classes}"

    # --- in use

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """The scores on other images; those that cannot be read are named, and counted as `left_out`."""
        refuse_options(given, options)
        path = Path(given.files)
        data = model.recipe.data or cls.data.parse({"train": {"path": path}}, f"--{cls.flag.name}")
        measure, broken, labels, measured = cls.measure(model), list[str](), list[str](), list[Tensor]()
        images = fit_all(data.train.changed(path=path).read(), image_table(model), broken)
        while chunk := list(islice(images, CHUNK)):
            labels += [image.label for image in chunk]
            measured.append(measure(np.stack([image.pixels for image in chunk])))
        report_broken(broken)
        if not labels:
            raise DataError(f"{path}: none of {len(broken):,} images can be read", broken[0])
        return cls.summarise(torch.cat(measured), labels, model.classes or [], str(path)) | {"left_out": len(broken)}

    @classmethod
    @abstractmethod
    def measure(cls, model: Pretrained) -> Callable[[np.ndarray], Tensor]:
        """What is computed for each image: uint8 (N, C, size, size) -> (N, …)."""

    @classmethod
    @abstractmethod
    def summarise(cls, measured: Tensor, labels: Sequence[str], classes: Sequence[str], where: str) -> dict[str, Any]:
        """The scores, from what `measure` computed for all images."""


def image_table(model: Pretrained) -> ImageConfig:
    """[image] of a trained model."""
    if model.recipe.image is None:
        raise CheckpointError(
            f"{model.path}: the recipe does not say how images become numbers",
            "give it an [image] with size, channels, mean and std",
        )
    return model.recipe.image


def decode_splits(
    data: ImageCorpora, image: ImageConfig, classes: Sequence[str], path: Callable[[str], Path]
) -> dict[str, ImageWriter]:
    """Decode and fit every image into the writer of its split, train first. The writers stay open.

    Images that cannot be read are named and left out. If this fails, the writers leave nothing behind.
    """
    assert image.size is not None
    assert image.channels is not None
    broken: list[str] = []
    with ExitStack() as stack:
        writers = dict[str, ImageWriter]()
        for split in data.splits:
            writers[split] = stack.enter_context(ImageWriter(path(split), image.channels, image.size))
        for split in data.splits:
            if (source := data.source(split)) is None:
                continue
            images = fit_all(source.read(), image, broken)
            for part, fitted in divide(images, data) if split == "train" else zip(repeat(split), images):
                [k] = number_classes([fitted.label], classes, split)
                writers[part].add(fitted.pixels, k)
        report_broken(broken)
        for split in ("train", "valid"):
            if not len(writers[split]):
                raise DataError(f"there are no images for {split}", f"give more, or some for [data] {split}")
        stack.pop_all()
    return writers


def discard(writers: Iterable[ImageWriter]) -> None:
    """Remove the temporary files of writers that were never closed; a file that is in place stays."""
    for writer in writers:
        writer.file.discard()


def divide(images: Iterable[Fitted], data: ImageCorpora) -> Iterator[tuple[str, Fitted]]:
    """Images of the training source, each with the split that it belongs to, by its place.

    If that leaves none for validation, there are few: then the first by place of every class that has two is held out.
    """
    rest, waiting, spared = iter(images), list[Fitted](), set[float]()
    if data.valid is None:
        for image in rest:
            waiting.append(image)
            if data.split_of(image.place) == "valid":
                break
        else:
            places: dict[str, set[float]] = {}
            for image in waiting:
                if data.split_of(image.place) == "train":
                    places.setdefault(image.label, set()).add(image.place)
            spared = {min(some) for some in places.values() if len(some) > 1}
    for image in chain(waiting, rest):
        yield "valid" if image.place in spared else data.split_of(image.place), image


def report_broken(broken: Sequence[str]) -> None:
    for problem in broken[:NAMED]:
        console.print(f"left out: {problem}")
    if len(broken) > NAMED:
        console.print(f"left out: {len(broken) - NAMED:,} more, {len(broken):,} in all")
