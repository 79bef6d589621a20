"""Tables of tensor names, ours and theirs, and the conversion of tensors between them.

    ours                                theirs
    encoder.blocks.0.attn.qkv.weight    model.encoder.layers.0.self_attn.{q,k,v}_proj.weight
    encoder.blocks.0.mlp.up.weight      model.encoder.layers.0.fc1.weight

A row maps one tensor of ours to the tensors of theirs that it is built from, stacked in this order along the first
dimension. Where their matrix is (in, out) rather than (out, in), the row is `transposed`. No arithmetic is involved: a
round trip is exact, bit for bit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.wording import listed

Rows = dict[str, tuple[str, ...]]
Table = Mapping[str, str | tuple[str, ...]]
KINDS = ("weight", "bias")
BATCH_NORM = (*KINDS, "running_mean", "running_var", "num_batches_tracked")
HINT = "weights and configuration must belong to the same model"


def inside(ours: str, theirs: str, table: Table) -> Rows:
    """The rows of a submodule, with the prefixes that its parent adds to the names on both sides."""
    return {
        f"{ours}{left}": tuple(f"{theirs}{name}" for name in ([right] if isinstance(right, str) else right))
        for left, right in table.items()
    }


def rows_of(table: Table, kinds: Sequence[str] = KINDS) -> Rows:
    """Expand a table of layers: one row for each of weight and bias."""
    layers = inside("", "", table).items()
    return {f"{left}{kind}": tuple(f"{name}{kind}" for name in right) for left, right in layers for kind in kinds}


def block_rows(ours: str, theirs: str, n_blocks: int, block: Table, kinds: Sequence[str] = KINDS) -> Rows:
    """The rows of a stack of identical blocks, numbered from 0 on both sides."""
    rows: Rows = {}
    for i in range(n_blocks):
        rows |= rows_of(inside(f"{ours}{i}.", f"{theirs}{i}.", block), kinds)
    return rows


def conv_rows(ours: str, conv: str, norm: str) -> Rows:
    """The rows of a convolution and its batch norm, layers/conv.py."""
    return {f"{ours}conv.weight": (f"{conv}weight",), **rows_of({f"{ours}norm.": norm}, BATCH_NORM)}


def to_ours(
    theirs: Mapping[str, Tensor], rows: Rows, where: str, transposed: Collection[str] = ()
) -> dict[str, Tensor]:
    """Their tensors under our names. Missing tensors, and tensors without a row, raise an error."""
    check(theirs, {name for names in rows.values() for name in names}, where)
    ours: dict[str, Tensor] = {}
    for our_name, names in rows.items():
        parts = [theirs[name].T if our_name in transposed else theirs[name] for name in names]
        try:
            ours[our_name] = torch.cat(parts) if len(parts) > 1 else parts[0].clone()
        except RuntimeError:
            shapes = listed(tuple(theirs[name].shape) for name in names)
            raise CheckpointError(
                f"{where}: {quoted(names)} cannot be stacked, because their shapes differ: {shapes}", HINT
            ) from None
    return ours


def to_theirs(
    ours: Mapping[str, Tensor],
    rows: Rows,
    where: str,
    transposed: Collection[str] = (),
    parts: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Tensor]:
    """Our tensors under their names. A stacked tensor is split evenly, or into the numbers of rows in `parts`."""
    check(ours, rows, where)
    theirs: dict[str, Tensor] = {}
    for our_name, names in rows.items():
        tensor, sizes = ours[our_name], (parts or {}).get(our_name)
        n_rows = [] if len(names) == 1 else sizes or [len(tensor) // len(names)] * len(names)
        split = tensor.split(list(n_rows)) if n_rows else (tensor,)  # an unstacked tensor may be a scalar without rows
        theirs |= {name: (part.T if our_name in transposed else part).clone() for name, part in zip(names, split)}
    return theirs


def without_copies(theirs: Mapping[str, Tensor], copies: Mapping[str, str], where: str) -> dict[str, Tensor]:
    """Drop tensors that duplicate another: copy -> original. A copy whose original is absent takes the name of it."""
    tensors = dict(theirs)
    for name, original in copies.items():
        if name in tensors and not torch.equal(copy := tensors.pop(name), tensors.setdefault(original, copy)):
            raise CheckpointError(
                f"{where}: `{name}` differs from `{original}`", "only a model in which the two are tied can be imported"
            )
    return tensors


def check(tensors: Collection[str], expected: Collection[str], where: str) -> None:
    """Raise an error unless exactly these tensors are present."""
    missing, extra = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    if missing or extra:
        problem = f"lacks {quoted(missing)}" if missing else f"has {quoted(extra)}, absent from the configured model"
        raise CheckpointError(f"{where} {problem}", HINT)


def quoted(names: Iterable[str]) -> str:
    """Names in a message, in backticks: the first three, and how many more there are."""
    return listed((f"`{name}`" for name in names), most=3)
