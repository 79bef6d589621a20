"""The classes of batches that models read.

Batch (pairs), TextBatch (running text), EncoderBatch (whole texts), ImageBatch (images), SoundBatch (recordings).
"""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

IGNORE = -100  # the label of a position that is not predicted; torch's losses skip it by default


def is_labelled(labels: Tensor) -> Tensor:
    """True at positions with a label: a class other than IGNORE, or, in a regression, a value other than NaN."""
    return ~labels.isnan() if labels.is_floating_point() else labels != IGNORE


class Tensors:
    """Base class of all batches: a frozen dataclass of tensors that are moved together. The first field has B rows.

    `n_tokens`, the divisor of the loss, is counted once, while the labels are still on the host, and stored with the
    tensors: reading it never makes the host wait for a device.
    """

    n_tokens: int

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return the batch on another device. A `non_blocking` copy is asynchronous only from pinned memory."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the batch in page-locked host memory; requires a CUDA device."""
        return self.map(lambda tensor: tensor.pin_memory())

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        """Return a batch of zeros, for inspecting shapes or warming up a model.

        `length` is the number of tokens of a row, the side of an image in pixels, or the number of frames of a
        recording; `channels` is used for images and recordings only.
        """
        raise NotImplementedError

    def map(self, move: Callable[[Tensor], Tensor]) -> Self:
        """The same batch with `move` applied to every tensor."""
        fields = vars(self).items()
        return type(self)(**{name: move(value) if isinstance(value, Tensor) else value for name, value in fields})

    def split(self, n: int) -> list[Self]:
        """Divide the rows into n parts of nearly equal size, or into single rows if there are fewer than n.

        The padding stays. The targets of each part are counted, so that the counts add up to `n_tokens`.
        """
        edges = [round(i * len(self) / n) for i in range(n + 1)] if n < len(self) else range(len(self) + 1)
        return [self.narrowed(start, stop) for start, stop in pairwise(edges)]

    def narrowed(self, start: int, stop: int) -> Self:
        """The batch with these rows only."""
        fields = {name: value[start:stop] if isinstance(value, Tensor) else value for name, value in vars(self).items()}
        return type(self)(**{**fields, "n_tokens": -1})

    def signature(self) -> Hashable:
        """Everything that a compiled or recorded step depends on: shapes and types of tensors, and other values."""
        values = ((name, value) for name, value in vars(self).items() if name != "n_tokens")
        return tuple((name, v.shape, v.dtype) if isinstance(v, Tensor) else (name, v) for name, v in values)

    def _count(self, labels: Tensor | None) -> None:
        """Set `n_tokens`, if it was omitted, to the number of labels that are not IGNORE, or to B without labels."""
        if self.n_tokens < 0:
            object.__setattr__(self, "n_tokens", len(self) if labels is None else int(is_labelled(labels).sum()))


@dataclass(frozen=True)
class Batch(Tensors):
    """A batch of sentence pairs: sources are padded to the longest source, targets to the longest target.

    source       (B, S) int64   x1 ... xm EOS, then padding
    source_mask  (B, S) bool    True at x1 ... xm EOS
    target       (B, T) int64   BOS y1 ... yn, then padding: the input of the decoder
    labels       (B, T) int64   y1 ... yn EOS, then IGNORE: the tokens to predict
    n_tokens     int            number of labels that are not IGNORE
    """

    source: Tensor
    source_mask: Tensor
    target: Tensor
    labels: Tensor
    n_tokens: int = -1  # counted from the labels if omitted

    def __post_init__(self) -> None:
        self._count(self.labels)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        tokens = torch.zeros(n_rows, length, dtype=torch.long)
        return cls(tokens, tokens == 0, tokens, tokens, n_rows * length)


@dataclass(frozen=True)
class TextBatch(Tensors):
    """A batch of running text for a model that reads from left to right.

    tokens     (B, T) int64          x1 ... xT: the input
    labels     (B, T) int64          x2 ... xT+1: the tokens to predict; IGNORE where nothing is predicted
    documents  (B, T) int64 or None  document numbers; only positions with equal numbers may attend to each other
                                     (None: each row is one document)
    positions  (B, T) int64 or None  0, 1, 2 ..., restarting in each document (None: 0 ... T - 1 in each row)
    context    (B, T) bool or None   True at tokens that the whole document may attend to, even from earlier positions:
                                     the context of a prefix LM (None: no such tokens)
    continues  (B,) bool or None     True for rows that continue the same row of this block's previous batch
                                     (None: all rows start afresh)
    block      int                   index of this block of rows, where a step consists of several blocks
    n_tokens   int                   number of labels that are not IGNORE
    """

    tokens: Tensor
    labels: Tensor
    documents: Tensor | None = None
    positions: Tensor | None = None
    context: Tensor | None = None
    continues: Tensor | None = None
    block: int = 0
    n_tokens: int = -1  # counted from the labels if omitted

    def __post_init__(self) -> None:
        self._count(self.labels)

    @property
    def prefix(self) -> Tensor | None:
        """Deprecated: use `context`."""
        return renamed(self.context, "TextBatch.prefix", "TextBatch.context")

    @property
    def goes_on(self) -> Tensor | None:
        """Deprecated: use `continues`."""
        return renamed(self.continues, "TextBatch.goes_on", "TextBatch.continues")

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        tokens = torch.zeros(n_rows, length, dtype=torch.long)
        return cls(tokens, tokens, n_tokens=n_rows * length)


@dataclass(frozen=True)
class EncoderBatch(Tensors):
    """A batch of texts, or of pairs of texts, for a model that reads them in both directions.

    tokens    (B, T) int64          CLS a1 ... am SEP, or CLS a1 ... am SEP b1 ... bn SEP, then padding
    mask      (B, T) bool or None   True at tokens, False at padding (None: no padding)
    segments  (B, T) int64 or None  0 at CLS a SEP, 1 at b SEP (None: all 0)
    labels    (B, T) int64 or None  the correct token at positions to predict, IGNORE elsewhere; in a regression,
                                    the value (float) at these positions, NaN elsewhere
    classes   (B,) int64 or float   the class of each row, or its value in a regression (None: rows have no labels)
    labelled  (n,) int64 or None    indices of the labelled positions among all B · T, computed on the host
    n_tokens  int                   number of labels that are not IGNORE; B if there are no labels
    labels_per_row  float or None   of the whole batch, if this is a part of it (None: this batch is whole)
    """

    tokens: Tensor
    mask: Tensor | None = None
    segments: Tensor | None = None
    labels: Tensor | None = None
    classes: Tensor | None = None
    labelled: Tensor | None = None
    n_tokens: int = -1  # counted if omitted
    labels_per_row: float | None = None

    def __post_init__(self) -> None:
        self._count(self.labels)
        if self.labels is not None and self.labelled is None:
            object.__setattr__(self, "labelled", is_labelled(self.labels.flatten()).nonzero()[:, 0])

    @property
    def asked(self) -> Tensor | None:
        """Deprecated: use `labelled`."""
        return renamed(self.labelled, "EncoderBatch.asked", "EncoderBatch.labelled")

    def narrowed(self, start: int, stop: int) -> Self:
        part = super().narrowed(start, stop)
        if self.labels is None:
            return part
        assert self.labelled is not None
        per_row = len(self.labelled) / len(self) if self.labels_per_row is None else self.labels_per_row
        return replace(part, labelled=None, labels_per_row=per_row)  # positions are counted from the first row again

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        tokens, n = torch.zeros(n_rows, length, dtype=torch.long), n_rows * length
        return cls(tokens, tokens == 0, tokens, tokens, tokens[:, 0], torch.arange(n), n)


@dataclass(frozen=True)
class ImageBatch(Tensors):
    """A batch of images of one size.

    pixels    (B, C, H, W)   float, normalised: the input of a model; or uint8, 0 ... 255, before normalisation
    classes   (B,) int64     the class of each image (None: no labels)
    n_tokens  int            B
    """

    pixels: Tensor
    classes: Tensor | None = None
    n_tokens: int = -1  # counted if omitted

    def __post_init__(self) -> None:
        self._count(None)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        return cls(torch.zeros(n_rows, channels, length, length), torch.zeros(n_rows, dtype=torch.long))


@dataclass(frozen=True)
class SoundBatch(Tensors):
    """A batch of recordings, padded to the longest.

    sounds    (B, T, M) float        frames: the input of a model; or (B, N) int16: samples, before conversion to frames
    lengths   (B,) int64             number of frames, or samples, of each recording; zeros follow
    labels    (B, U) int64 or None   tokens of the transcript, then IGNORE
    n_tokens  int                    number of labels that are not IGNORE; B if there are no labels
    """

    sounds: Tensor
    lengths: Tensor
    labels: Tensor | None = None
    n_tokens: int = -1  # counted if omitted

    def __post_init__(self) -> None:
        self._count(self.labels)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        labels = torch.zeros(n_rows, length, dtype=torch.long)
        return cls(torch.zeros(n_rows, length, channels), torch.full((n_rows,), length), labels, n_rows * length)


def batch_class(model: nn.Module) -> type[Tensors]:
    """The class of batches that a model reads: its attribute `batch_class`, or `Batch` if a user's model has none."""
    return getattr(model, "batch_class", Batch)


def renamed(value: Tensor | None, old: str, new: str) -> Tensor | None:
    """Return the value of a renamed field, and warn that its old name is deprecated."""
    warnings.warn(f"{old} is deprecated: use {new}", DeprecationWarning, stacklevel=3)
    return value
