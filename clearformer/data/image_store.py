"""Store prepared images on disk, memory-mapped: the pixels of images of one size, and the class of each image.

    classes  (n,) int64
    pixels   (n, C, size, size) uint8

The metadata holds the mean and standard deviation of each channel over all pixels, with pixel values scaled to 0 … 1.
"""

import json
from pathlib import Path
from typing import Self

import numpy as np
import torch

from clearformer.data.batch import ImageBatch
from clearformer.data.store import MARK, Store
from clearformer.data.tensor_file import TensorFileWriter, TensorSpec


class ImageStore(Store):
    SIDES = ()
    KIND = "pictures 1"  # as older versions wrote it
    CONTENT = "images"

    @classmethod
    def tensors(cls) -> tuple[str, ...]:
        return "classes", "pixels"

    @property
    def classes(self) -> np.ndarray:
        return self._flat[0]

    @property
    def pixels(self) -> np.ndarray:
        """The pixels of all images, uint8 (n, C, size, size): a view of the mapped file."""
        return self._flat[1]

    @property
    def mean(self) -> tuple[float, ...]:
        return tuple(json.loads(self.metadata["mean"]))

    @property
    def std(self) -> tuple[float, ...]:
        return tuple(json.loads(self.metadata["std"]))

    def __len__(self) -> int:
        return len(self.classes)

    def batch(self, rows: np.ndarray) -> ImageBatch:
        return ImageBatch(torch.from_numpy(self.pixels[rows]), torch.from_numpy(self.classes[rows]))


class ImageWriter:
    """Streams images into a store. The file appears at the end of the `with` block, complete or not at all."""

    def __init__(self, path: Path, channels: int, size: int) -> None:
        specs = {"classes": TensorSpec("int64"), "pixels": TensorSpec("uint8", (channels, size, size))}
        self.file = TensorFileWriter(path, specs, {MARK: ImageStore.KIND})
        self.sums = np.zeros((2, channels), "int64")  # Σ x and Σ x² per channel, exact

    def add(self, pixels: np.ndarray, k: int) -> None:
        """Append one image, uint8 (C, size, size), of class k."""
        self.file.append("pixels", pixels[None])
        self.file.append("classes", np.array([k]))
        flat = pixels.reshape(len(pixels), -1).astype("int64")
        self.sums += np.stack([flat.sum(1), np.square(flat).sum(1)])

    def __len__(self) -> int:
        return self.file.counts["classes"]

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and standard deviation of each channel over all pixels added so far, scaled to 0 … 1."""
        size = self.file.specs["pixels"].row[1]
        mean, square = self.sums / (len(self) * size**2)
        variance = square - mean**2
        std = np.sqrt(np.where(variance > 1e-6, variance, 1))  # 1 for a constant channel, to avoid division by 0
        return tuple((mean / 255).tolist()), tuple((std / 255).tolist())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not len(self):
            self.file.discard()
            return
        mean, std = self.statistics
        self.file.metadata |= {"mean": json.dumps(mean), "std": json.dumps(std)}
        self.file.join()
