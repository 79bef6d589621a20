"""The base class of all tasks on images.

`learn` already decodes the images, because the final recipe needs the mean and standard deviation of their pixels. It
writes them to temporary files, which `store` moves to their final place, so that every image is decoded only once.
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
from clearformer.wording import count

MAX_LISTED = 5  # maximum number of unreadable files listed by name; the others are only counted


class ImageBatches:
    """Batches of equal size, in an order that depends only on (seed, epoch).

    Images that would not fill the last batch of an epoch are left out, because a batch of two or three images is
    useless for batch norm. The next epoch has another order.
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
        """Yield all images once, in the order of the store."""
        for start in range(0, len(self.store), self.n_rows):
            yield self.store.batch(np.arange(start, min(start + self.n_rows, len(self.store))))


class ImageTask(Task):
    flag = IMAGES
    unit = batch_unit = "images"
    n_tokenizers = 0
    has_classes = True

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        """Give images and model the same size: the size in [image] if it is set, otherwise the size in [model]."""
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
        """Read the classes and decode the images. `base` is not used: its [image] is already in the recipe."""
        self.classes = self.read_classes()
        self.decode()
        self.statistics = self.writers["train"].statistics

    @abstractmethod
    def read_classes(self) -> list[str]:
        """Return the classes of the data. Unsuitable data is refused here, before any image is decoded."""

    def decode(self) -> None:
        """Decode all splits into temporary files. They are removed unless `store` moves them to their final place."""
        assert self.classes is not None
        self.writers = decode_splits(self.recipe.data, self.image, self.classes, self.path)
        weakref.finalize(self, discard, list(self.writers.values()))

    @property
    def image(self) -> ImageConfig:
        assert self.recipe.image is not None, "set by __init__"
        return self.recipe.image

    def settle(self) -> Tables:
        mean, std = self.statistics
        image = self.image.changed(mean=self.image.mean or mean, std=self.image.std or std)
        return self.recipe.with_tables(image=image)

    def store(self) -> None:
        if not self.writers:
            self.decode()
        counts = [f"{split}: {count(len(writer), 'image')}" for split, writer in self.writers.items() if len(writer)]
        with ExitStack() as stack:  # closes in reverse order, so that train comes last
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
        """Return the steps. While they exist, cuDNN benchmarks its kernels, which pays off for batches of one size."""
        steps, cudnn = super().steps(world), torch.backends.cudnn
        if not self.recipe.train.deterministic:
            weakref.finalize(steps, setattr, cudnn, "benchmark", cudnn.benchmark)
            cudnn.benchmark = True
        return steps

    def describe(self) -> str:
        store = self.split("train").store
        classes = f", {count(len(self.classes), 'class', 'classes')}" if self.classes and len(self.classes) > 1 else ""
        size = " × ".join(map(str, store.pixels.shape[:0:-1]))
        return f"{count(len(store), 'training image')} of {size}{classes}"

    # --- inference

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Compute the metrics on other images. Unreadable images are listed, and counted as `left_out`.

        `errors` and `calibrate` are for classifiers.
        """
        known = ("errors", "calibrate") if cls.predicts_classes else ()
        refuse_options(given, {name: value for name, value in options.items() if name not in known})
        path = Path(given.files)
        data = model.recipe.data or cls.data.parse({"train": {"path": path}}, f"--{cls.flag.name}")
        measure, broken, names, measured = cls.measure(model), list[str](), list[tuple[str, str]](), list[Tensor]()
        images = fit_all(data.train.changed(path=path).read(), image_table(model), broken)
        while chunk := list(islice(images, CHUNK)):
            names += [(image.name, image.label) for image in chunk]
            measured.append(measure(np.stack([image.pixels for image in chunk])))
        report_broken(broken)
        if not names:
            raise DataError(f"{path}: {count(len(broken), 'image')}, but none can be read", f"first error: {broken[0]}")
        return cls.summarise(model, torch.cat(measured), names, str(path), **options) | {"left_out": len(broken)}

    @classmethod
    @abstractmethod
    def measure(cls, model: Pretrained) -> Callable[[np.ndarray], Tensor]:
        """Return the function to apply to chunks of images: uint8 (N, C, size, size) -> (N, …)."""

    @classmethod
    @abstractmethod
    def summarise(
        cls, model: Pretrained, measured: Tensor, images: Sequence[tuple[str, str]], where: str
    ) -> dict[str, Any]:
        """Compute the metrics from the output of `measure` for all images, given with their names and labels."""


def image_table(model: Pretrained) -> ImageConfig:
    """Return the [image] table of a trained model."""
    if model.recipe.image is None:
        raise CheckpointError(
            f"{model.path}: the recipe has no [image] table",
            "add [image] with size, channels, mean and std to recipe.toml",
        )
    return model.recipe.image


def decode_splits(
    data: ImageCorpora, image: ImageConfig, classes: Sequence[str], path: Callable[[str], Path]
) -> dict[str, ImageWriter]:
    """Decode, resize and write all images, the training data first. Returns the writer of each split, still open.

    Unreadable images are listed and left out. If this function fails, it leaves no files behind.
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
                raise DataError(f"the {split} split has no images", f"add images, or set data.{split}.path")
        stack.pop_all()
    return writers


def discard(writers: Iterable[ImageWriter]) -> None:
    """Remove the temporary files of writers that were never closed; finished files stay."""
    for writer in writers:
        writer.file.discard()


def divide(images: Iterable[Fitted], data: ImageCorpora) -> Iterator[tuple[str, Fitted]]:
    """Yield each image of the training source with its split, which depends on the image's `place`.

    With few images, this may leave none for validation. Then the image with the lowest place is held out from every
    class that has at least two images.
    """
    rest, waiting, held_out = iter(images), list[Fitted](), set[float]()
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
            held_out = {min(some) for some in places.values() if len(some) > 1}
    for image in chain(waiting, rest):
        yield "valid" if image.place in held_out else data.split_of(image.place), image


def report_broken(broken: Sequence[str]) -> None:
    for problem in broken[:MAX_LISTED]:
        console.print(f"left out: {problem}")
    if len(broken) > MAX_LISTED:
        console.print(f"left out: {len(broken) - MAX_LISTED:,} more, {count(len(broken), 'image')} in total")
