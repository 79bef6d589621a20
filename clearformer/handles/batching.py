"""Batches of texts of similar length, with the results in the order of the texts."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearformer.data.batch import EncoderBatch
from clearformer.data.collate import cut
from clearformer.data.labels import pad_rows
from clearformer.data.store import Ragged, gather
from clearformer.errors import DataError
from clearformer.text import Tokenizer

BUDGET = {"cuda": 65536, "cpu": 4096}  # tokens computed at once, padding included


def read_texts(
    compute: Callable[[EncoderBatch], Tensor],
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_tokens: int,
    device: torch.device,
) -> Tensor:
    """compute(batch) (B, …) of every text, or of every text with its pair: (N, …) on the CPU."""
    refuse_string(texts)
    if pairs is not None and len(pairs) != len(texts):
        raise DataError(f"there are {len(texts)} texts and {len(pairs)} to pair them with", "give one for each")
    tokens, segments = tokenizer.framed(list(texts), None if pairs is None else list(pairs), max_tokens)
    return read_rows(compute, Ragged.of(tokens), Ragged.of(segments), tokenizer.pad_id, device)


@torch.no_grad()
def read_rows(
    compute: Callable[[EncoderBatch], Tensor], tokens: Ragged, segments: Ragged, pad_id: int, device: torch.device
) -> Tensor:
    """The same of rows that are framed already, in float32 at least. There must be one."""
    batches = in_batches(tokens, segments, pad_id, device)
    return in_order((index, compute(batch)) for index, _, batch in batches)


@torch.no_grad()
def read_tokens(
    compute: Callable[[EncoderBatch], Tensor], tokens: Ragged, segments: Ragged, pad_id: int, device: torch.device
) -> Tensor:
    """compute(batch) (B, T, …) at every token of such rows: (n, …), as `tokens.flat` has them."""
    batches = in_batches(tokens, segments, pad_id, device)
    return in_order((places, real(compute(batch), batch.mask)) for _, places, batch in batches)


def in_batches(
    tokens: Ragged, segments: Ragged, pad_id: int, device: torch.device
) -> Iterator[tuple[np.ndarray, np.ndarray, EncoderBatch]]:
    """Rows of like length together: their numbers, the places of their tokens in the flat array, and a batch."""
    order = np.argsort(tokens.lengths, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(tokens.lengths)])
    every = np.arange(offsets[-1])
    for index in np.split(order, cut(tokens.lengths[order], BUDGET.get(device.type, BUDGET["cpu"]))):
        places = gather(every, offsets, index).flat
        rows, kinds = (Ragged(side.flat[places], side.lengths[index]) for side in (tokens, segments))
        yield index, places, pad_rows(rows, kinds, pad_id).to(device)


def in_order(results: Iterator[tuple[np.ndarray, Tensor]]) -> Tensor:
    """The results of all batches, sorted by row number, on the CPU and in float32 at least."""
    numbers, tensors = [], []
    for rows, tensor in results:
        numbers.append(rows)
        tensors.append(tensor.to("cpu", torch.promote_types(tensor.dtype, torch.float32)))
    return torch.cat(tensors)[np.argsort(np.concatenate(numbers))]


def real(values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T, …) -> (n, …): the values at real tokens, without padding."""
    return values.flatten(0, 1) if mask is None else values[mask]


def refuse_string(texts: object, noun: str = "text") -> None:
    """A string is itself a sequence of strings of one character each, which is never what was meant."""
    if isinstance(texts, str | Path):
        raise DataError(
            f"expected a list of {noun}s, not the {noun} {str(texts)[:40]!r}", f"put it in a list: [{noun}]"
        )


def by_length(ids: Sequence[Sequence[int]], tokens: int, width: int, skip_empty: bool = True) -> Iterator[list[int]]:
    """Row numbers in batches of similar length, longest first, so that memory is at its highest at the start."""
    rows = sorted((row for row in range(len(ids)) if ids[row] or not skip_empty), key=lambda row: -len(ids[row]))
    start = 0
    while start < len(rows):
        size = max(1, tokens // (width * (len(ids[rows[start]]) + 1)))
        yield rows[start : start + size]
        start += size
