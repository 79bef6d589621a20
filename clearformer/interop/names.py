"""Convert tensors between Clearformer and another library, by tables of tensor names.

    ours                                theirs (here: Marian)
    encoder.blocks.0.attn.qkv.weight    model.encoder.layers.0.self_attn.{q,k,v}_proj.weight
    encoder.blocks.0.mlp.up.weight      model.encoder.layers.0.fc1.weight

A row maps one of our tensors to one or more tensors of the other library, which are stacked in this order along the
first dimension. If the other library stores a matrix as (in, out) instead of (out, in), its row is `transposed`. No
arithmetic is involved: a round trip is exact, bit for bit.
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
    """Return the table rows of a submodule: prefix our names with `ours`, and the other library's with `theirs`."""
    return {
        f"{ours}{left}": tuple(f"{theirs}{name}" for name in ([right] if isinstance(right, str) else right))
        for left, right in table.items()
    }


def rows_of(table: Table, kinds: Sequence[str] = KINDS) -> Rows:
    """Expand a table of layers into a table of tensors: by default, one row for the weight and one for the bias."""
    layers = inside("", "", table).items()
    return {f"{left}{kind}": tuple(f"{name}{kind}" for name in right) for left, right in layers for kind in kinds}


def block_rows(ours: str, theirs: str, n_blocks: int, block: Table, kinds: Sequence[str] = KINDS) -> Rows:
    """Return the table rows of a stack of identical blocks, which are numbered from 0 in both libraries."""
    rows: Rows = {}
    for i in range(n_blocks):
        rows |= rows_of(inside(f"{ours}{i}.", f"{theirs}{i}.", block), kinds)
    return rows


def conv_rows(ours: str, conv: str, norm: str) -> Rows:
    """Return the table rows of a `Conv` (layers/conv.py): a convolution and its batch norm."""
    return {f"{ours}conv.weight": (f"{conv}weight",), **rows_of({f"{ours}norm.": norm}, BATCH_NORM)}


def to_ours(
    theirs: Mapping[str, Tensor], rows: Rows, where: str, transposed: Collection[str] = ()
) -> dict[str, Tensor]:
    """Convert another library's tensors to ours. A tensor that is missing, or has no row, raises an error."""
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
    """Convert our tensors to another library's. Stacked tensors are split evenly, unless `parts` gives row counts."""
    check(ours, rows, where)
    theirs: dict[str, Tensor] = {}
    for our_name, names in rows.items():
        tensor, sizes = ours[our_name], (parts or {}).get(our_name)
        n_rows = [] if len(names) == 1 else sizes or [len(tensor) // len(names)] * len(names)
        split = tensor.split(list(n_rows)) if n_rows else (tensor,)  # an unstacked tensor may be a scalar, without rows
        theirs |= {name: (part.T if our_name in transposed else part).clone() for name, part in zip(names, split)}
    return theirs


def without_copies(theirs: Mapping[str, Tensor], copies: Mapping[str, str], where: str) -> dict[str, Tensor]:
    """Drop duplicate tensors; `copies` maps copy to original. If the original is missing, the copy is renamed to it."""
    tensors = dict(theirs)
    for name, original in copies.items():
        if name in tensors and not torch.equal(copy := tensors.pop(name), tensors.setdefault(original, copy)):
            raise CheckpointError(
                f"{where}: `{name}` differs from `{original}`", "only a model in which the two are tied can be imported"
            )
    return tensors


def check(tensors: Collection[str], expected: Collection[str], where: str) -> None:
    """Raise an error unless `tensors` has exactly the expected names."""
    missing, extra = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    if missing or extra:
        problem = f"lacks {quoted(missing)}" if missing else f"has {quoted(extra)}, which the configured model lacks"
        raise CheckpointError(f"{where} {problem}", HINT)


def quoted(names: Iterable[str]) -> str:
    """Format names for a message: the first three in backticks, then how many more there are."""
    return listed((f"`{name}`" for name in names), most=3)
