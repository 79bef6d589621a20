"""Texts through a network that reads them whole: framed, batched by length, and back in the order they came."""

from collections.abc import Callable, Sequence

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
    order = np.argsort(tokens.lengths, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(tokens.lengths)])
    found = []
    for index in np.split(order, cut(tokens.lengths[order], BUDGET.get(device.type, BUDGET["cpu"]))):
        batch = pad_rows(gather(tokens.flat, offsets, index), gather(segments.flat, offsets, index), pad_id)
        told = compute(batch.to(device))
        found.append(told.to("cpu", torch.promote_types(told.dtype, torch.float32)))
    return torch.cat(found)[np.argsort(order)]
