"""Batch: the one value that leaves this room."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

IGNORE = -100  # the label of a padded position; torch's losses skip it by default


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded to the longest of each side.

        source       (B, S) int64   x1 ... xm EOS, then padding
        source_mask  (B, S) bool    True at x1 ... xm EOS
        target       (B, T) int64   BOS y1 ... yn, then padding: what the decoder reads
        labels       (B, T) int64   y1 ... yn EOS, then IGNORE: what it should say next
        n_tokens     int            labels that are not IGNORE

    `n_tokens` is counted once, while the labels are still on the host, and travels along: reading it never makes
    the host wait for a device.
    """

    source: Tensor
    source_mask: Tensor
    target: Tensor
    labels: Tensor
    n_tokens: int = -1  # counted from the labels when left out

    def __post_init__(self) -> None:
        if self.n_tokens < 0:
            object.__setattr__(self, "n_tokens", int((self.labels != IGNORE).sum()))

    def __len__(self) -> int:
        return self.source.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on another device. Only pinned memory lets `non_blocking` overlap with computation."""
        return replace(
            self,
            source=self.source.to(device, non_blocking=non_blocking),
            source_mask=self.source_mask.to(device, non_blocking=non_blocking),
            target=self.target.to(device, non_blocking=non_blocking),
            labels=self.labels.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked host memory; needs a CUDA device to be there."""
        return replace(
            self,
            source=self.source.pin_memory(),
            source_mask=self.source_mask.pin_memory(),
            target=self.target.pin_memory(),
            labels=self.labels.pin_memory(),
        )
