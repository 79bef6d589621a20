"""Batch texts of similar length, and return the results in the order of the texts."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from clearformer.data.batch import EncoderBatch
from clearformer.data.collate import cut
from clearformer.data.labels import pad_rows
from clearformer.data.store import Ragged, gather
from clearformer.errors import DataError
from clearformer.handles.passes import in_passes
from clearformer.text import Tokenizer
from clearformer.wording import count

BUDGET = {"cuda": 65536, "cpu": 4096}  # tokens per batch, padding included


def read_texts(
    compute: Callable[[EncoderBatch], Tensor],
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_tokens: int,
    device: torch.device,
) -> Tensor:
    """Apply compute(batch) -> (B, …) to every text, or to every text and its pair, and return (N, …) on the CPU."""
    if pairs is not None and len(pairs) != len(texts):
        raise DataError(
            f"{count(len(texts), 'text')} and {count(len(pairs), 'second text')} cannot be paired",
            "give as many second texts as texts",
        )
    tokens, segments = tokenizer.encode_with_specials(list(texts), None if pairs is None else list(pairs), max_tokens)
    return read_rows(compute, Ragged.of(tokens), Ragged.of(segments), tokenizer.pad_id, device)


@torch.no_grad()
def read_rows(
    compute: Callable[[EncoderBatch], Tensor], tokens: Ragged, segments: Ragged, pad_id: int, device: torch.device
) -> Tensor:
    """Apply `compute` to one or more rows that already contain special tokens. Returns float32 or wider."""
    batches = in_batches(tokens, segments, pad_id, device)
    return in_order((index, compute(batch)) for index, _, batch in batches)


@torch.no_grad()
def read_tokens(
    compute: Callable[[EncoderBatch], Tensor], tokens: Ragged, segments: Ragged, pad_id: int, device: torch.device
) -> Tensor:
    """Apply compute(batch) -> (B, T, …) to rows with special tokens. Returns (n, …), in the order of `tokens.flat`."""
    batches = in_batches(tokens, segments, pad_id, device)
    return in_order((places, without_padding(compute(batch), batch.mask)) for _, places, batch in batches)


def in_batches(
    tokens: Ragged, segments: Ragged, pad_id: int, device: torch.device
) -> Iterator[tuple[np.ndarray, np.ndarray, EncoderBatch]]:
    """Yield batches of rows of similar length: row indices, token indices in the flat array, and the batch."""
    order = np.argsort(tokens.lengths, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(tokens.lengths)])
    flat_indices = np.arange(offsets[-1])
    batches = np.split(order, cut(tokens.lengths[order], BUDGET.get(device.type, BUDGET["cpu"])))
    for index in in_passes(batches, len(order)):
        places = gather(flat_indices, offsets, index).flat
        rows, kinds = (Ragged(side.flat[places], side.lengths[index]) for side in (tokens, segments))
        yield index, places, pad_rows(rows, kinds, pad_id).to(device)


def in_order(results: Iterator[tuple[np.ndarray, Tensor]]) -> Tensor:
    """Join the results of all batches in the original order of the rows, on the CPU in float32 or wider."""
    indices, tensors = [], []
    for rows, tensor in results:
        indices.append(rows)
        tensors.append(tensor.to("cpu", torch.promote_types(tensor.dtype, torch.float32)))
    return torch.cat(tensors)[np.argsort(np.concatenate(indices))]


def without_padding(values: Tensor, mask: Tensor | None) -> Tensor:
    """Select the values at tokens that are not padding: (B, T, …) -> (n, …)."""
    return values.flatten(0, 1) if mask is None else values[mask]


def by_length(ids: Sequence[Sequence[int]], tokens: int, width: int, skip_empty: bool = True) -> Iterator[list[int]]:
    """Yield row indices in batches of similar length, longest first, so that a lack of memory shows immediately.

    `width` is the number of hypotheses per row. Empty rows are left out unless `skip_empty` is False.
    """
    rows = sorted((row for row in range(len(ids)) if ids[row] or not skip_empty), key=lambda row: -len(ids[row]))
    batches, start = [], 0
    while start < len(rows):
        size = max(1, tokens // (width * (len(ids[rows[start]]) + 1)))
        batches.append(rows[start : start + size])
        start += size
    yield from in_passes(batches, len(rows))
