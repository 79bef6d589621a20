"""Texts through a network that reads them whole: framed, batched by length, and back in the order they came."""

from collections.abc import Callable, Iterator, Sequence

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
    if isinstance(texts, str):
        raise DataError("a string is given where a list of texts is wanted", "write [text]")
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


def in_order(found: Iterator[tuple[np.ndarray, Tensor]]) -> Tensor:
    """What was computed, each at its number, on the CPU and in float32 at least."""
    numbers, told = [], []
    for some, scores in found:
        numbers.append(some)
        told.append(scores.to("cpu", torch.promote_types(scores.dtype, torch.float32)))
    return torch.cat(told)[np.argsort(np.concatenate(numbers))]


def real(told: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T, …) -> (n, …): without what was computed at padding."""
    return told.flatten(0, 1) if mask is None else told[mask]
