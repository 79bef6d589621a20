"""The values that leave this room.

Batch (pairs), TextBatch (running text), EncoderBatch (whole texts), ImageBatch (pictures), SoundBatch (recordings).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

IGNORE = -100  # the label of a position that is not predicted; torch's losses skip it by default


def is_asked(labels: Tensor) -> Tensor:
    """Where something is predicted: not where a class is IGNORE, or a value, which could be any number, is NaN."""
    return ~labels.isnan() if labels.is_floating_point() else labels != IGNORE


class Tensors:
    """The base of every batch, a frozen dataclass whose tensors travel together; its first field has B rows.

    `n_tokens`, what a loss is divided by, is counted once, while the labels are still on the host, and travels along:
    reading it never makes the host wait for a device.
    """

    n_tokens: int

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same batch on another device. Only pinned memory lets `non_blocking` overlap with computation."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """The same batch in page-locked host memory; needs a CUDA device to be there."""
        return self._each(lambda tensor: tensor.pin_memory())

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        """A batch of zeros, to look at shapes or to warm up.

        `length` is tokens, pixels per side of an image, or frames of a recording; only the last two have `channels`.
        """
        raise NotImplementedError

    def _each(self, move: Callable[[Tensor], Tensor]) -> Self:
        fields = vars(self).items()
        return type(self)(**{name: move(value) if isinstance(value, Tensor) else value for name, value in fields})

    def _count(self, labels: Tensor | None) -> None:
        """Fill in an `n_tokens` that was left out: the labels that are not IGNORE, or the rows where there are none."""
        if self.n_tokens < 0:
            object.__setattr__(self, "n_tokens", len(self) if labels is None else int(is_asked(labels).sum()))


@dataclass(frozen=True)
class Batch(Tensors):
    """Sentence pairs, padded to the longest of each side.

    source       (B, S) int64   x1 ... xm EOS, then padding
    source_mask  (B, S) bool    True at x1 ... xm EOS
    target       (B, T) int64   BOS y1 ... yn, then padding: what the decoder reads
    labels       (B, T) int64   y1 ... yn EOS, then IGNORE: what it should say next
    n_tokens     int            labels that are not IGNORE
    """

    source: Tensor
    source_mask: Tensor
    target: Tensor
    labels: Tensor
    n_tokens: int = -1  # counted from the labels when left out

    def __post_init__(self) -> None:
        self._count(self.labels)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        tokens = torch.zeros(n_rows, length, dtype=torch.long)
        return cls(tokens, tokens == 0, tokens, tokens, n_rows * length)


@dataclass(frozen=True)
class TextBatch(Tensors):
    """Running text for a model that reads from left to right.

    tokens     (B, T) int64          x1 ... xT: what the model reads
    labels     (B, T) int64          x2 ... xT+1: what it should say next; IGNORE where nothing is asked
    documents  (B, T) int64 or None  positions with equal numbers may see each other; None: each row is one document
    positions  (B, T) int64 or None  0, 1, 2 ... anew in each document; None: 0 ... T - 1 in each row
    prefix     (B, T) bool or None   True at what all of its document may see, also from before; None: nothing is
    goes_on    (B,) bool or None     rows that go on where this block's batch before ended; None: all begin anew
    block      int                   which rows they are, where a step's rows are several blocks
    n_tokens   int                   labels that are not IGNORE
    """

    tokens: Tensor
    labels: Tensor
    documents: Tensor | None = None
    positions: Tensor | None = None
    prefix: Tensor | None = None
    goes_on: Tensor | None = None
    block: int = 0
    n_tokens: int = -1  # counted from the labels when left out

    def __post_init__(self) -> None:
        self._count(self.labels)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        tokens = torch.zeros(n_rows, length, dtype=torch.long)
        return cls(tokens, tokens, n_tokens=n_rows * length)


@dataclass(frozen=True)
class EncoderBatch(Tensors):
    """Texts, or pairs of texts, for a model that reads them whole.

    tokens    (B, T) int64          CLS a1 ... am SEP, or CLS a1 ... am SEP b1 ... bn SEP, then padding
    mask      (B, T) bool or None   True at real tokens; None: there is no padding
    segments  (B, T) int64 or None  0 at CLS a SEP, 1 at b SEP; None: all 0
    labels    (B, T) int64 or None  the token that belongs at each position that is asked for, IGNORE elsewhere; or,
                                    in a regression, float: its value, NaN elsewhere
    classes   (B,) int64 or float   each row's class, or its value in a regression; None where rows are not judged
    asked     (n,) int64 or None    where labels are not IGNORE, of B · T places; found on the host, as n_tokens is
    n_tokens  int                   labels that are not IGNORE; B where there are no labels
    """

    tokens: Tensor
    mask: Tensor | None = None
    segments: Tensor | None = None
    labels: Tensor | None = None
    classes: Tensor | None = None
    asked: Tensor | None = None
    n_tokens: int = -1  # counted when left out

    def __post_init__(self) -> None:
        self._count(self.labels)
        if self.labels is not None and self.asked is None:
            object.__setattr__(self, "asked", is_asked(self.labels.flatten()).nonzero()[:, 0])

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        tokens, n = torch.zeros(n_rows, length, dtype=torch.long), n_rows * length
        return cls(tokens, tokens == 0, tokens, tokens, tokens[:, 0], torch.arange(n), n)


@dataclass(frozen=True)
class ImageBatch(Tensors):
    """Pictures of one size.

    pixels    (B, C, H, W)   float, normalised: what a model reads; uint8, 0 ... 255: as they travel to the device
    classes   (B,) int64     what each shows; None where nobody says
    n_tokens  int            B
    """

    pixels: Tensor
    classes: Tensor | None = None
    n_tokens: int = -1  # counted when left out

    def __post_init__(self) -> None:
        self._count(None)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        return cls(torch.zeros(n_rows, channels, length, length), torch.zeros(n_rows, dtype=torch.long))


@dataclass(frozen=True)
class SoundBatch(Tensors):
    """Recordings, padded to the longest.

    sounds    (B, T, M) float        frames: what a model reads; (B, N) int16: samples, as they travel to the device
    lengths   (B,) int64             frames, or samples, of each; beyond them are zeros
    labels    (B, U) int64 or None   tokens of what is said, then IGNORE
    n_tokens  int                    labels that are not IGNORE; B where there are no labels
    """

    sounds: Tensor
    lengths: Tensor
    labels: Tensor | None = None
    n_tokens: int = -1  # counted when left out

    def __post_init__(self) -> None:
        self._count(self.labels)

    @classmethod
    def blank(cls, n_rows: int, length: int, channels: int = 3) -> Self:
        labels = torch.zeros(n_rows, length, dtype=torch.long)
        return cls(torch.zeros(n_rows, length, channels), torch.full((n_rows,), length), labels, n_rows * length)


def batch_class(model: nn.Module) -> type[Tensors]:
    """The class of batches that a model reads. A model of the user's that does not say reads pairs."""
    return getattr(model, "batch_class", Batch)
