"""Two columns of names, ours and theirs, and the tensors that pass between them.

    ours                                theirs
    encoder.blocks.0.attn.qkv.weight    model.encoder.layers.0.self_attn.{q,k,v}_proj.weight
    encoder.blocks.0.mlp.up.weight      model.encoder.layers.0.fc1.weight

A row names one tensor of ours and those of theirs that it is made of, stacked in this order along the first dimension.
Some of theirs lie the other way round, (in, out) rather than (out, in): such a row is `turned`. Nothing is computed on
the way: what goes over and comes back is the same, bit by bit.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from clearformer.errors import CheckpointError

Rows = dict[str, tuple[str, ...]]
Table = Mapping[str, str | tuple[str, ...]]
KINDS = ("weight", "bias")
BATCH_NORM = (*KINDS, "running_mean", "running_var", "num_batches_tracked")
HINT = "weights and configuration must belong to the same model"


def inside(ours: str, theirs: str, table: Table) -> Rows:
    """The table of a module as the module around it says it: both prefixes written out."""
    return {
        f"{ours}{left}": tuple(f"{theirs}{name}" for name in ([right] if isinstance(right, str) else right))
        for left, right in table.items()
    }


def rows_of(table: Table, kinds: Sequence[str] = KINDS) -> Rows:
    """The rows of a table of layers, once for weight and once for bias."""
    layers = inside("", "", table).items()
    return {f"{left}{kind}": tuple(f"{name}{kind}" for name in right) for left, right in layers for kind in kinds}


def block_rows(ours: str, theirs: str, n_blocks: int, block: Table, kinds: Sequence[str] = KINDS) -> Rows:
    """The rows of a stack of equal blocks, numbered from 0 on both sides."""
    rows: Rows = {}
    for i in range(n_blocks):
        rows |= rows_of(inside(f"{ours}{i}.", f"{theirs}{i}.", block), kinds)
    return rows


def conv_rows(ours: str, conv: str, norm: str) -> Rows:
    """The rows of a convolution and its batch norm, layers/conv.py."""
    return {f"{ours}conv.weight": (f"{conv}weight",), **rows_of({f"{ours}norm.": norm}, BATCH_NORM)}


def to_ours(theirs: Mapping[str, Tensor], rows: Rows, where: str, turned: Collection[str] = ()) -> dict[str, Tensor]:
    """Their tensors under our names. One that is missing, or that no row speaks of, is named in the error."""
    check(theirs, {name for names in rows.values() for name in names}, where)
    ours: dict[str, Tensor] = {}
    for own, names in rows.items():
        parts = [theirs[name].T if own in turned else theirs[name] for name in names]
        try:
            ours[own] = torch.cat(parts) if len(parts) > 1 else parts[0].clone()
        except RuntimeError:
            shapes = " and ".join(str(tuple(theirs[name].shape)) for name in names)
            raise CheckpointError(f"{where}: {listed([*names])} do not fit together: {shapes}", HINT) from None
    return ours


def to_theirs(
    ours: Mapping[str, Tensor],
    rows: Rows,
    where: str,
    turned: Collection[str] = (),
    parts: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Tensor]:
    """Our tensors under their names; a stacked one is cut into equal parts, or into `parts`, so many rows each."""
    check(ours, rows, where)
    theirs: dict[str, Tensor] = {}
    for own, names in rows.items():
        tensor, sizes = ours[own], (parts or {}).get(own)
        n_rows = [] if len(names) == 1 else sizes or [len(tensor) // len(names)] * len(names)
        cut = tensor.split(list(n_rows)) if n_rows else (tensor,)  # one alone may be a number, which has no rows
        theirs |= {name: (part.T if own in turned else part).clone() for name, part in zip(names, cut)}
    return theirs


def without_copies(theirs: Mapping[str, Tensor], copies: Mapping[str, str], where: str) -> dict[str, Tensor]:
    """Without those tensors that repeat another: copy -> original. A copy whose original is absent takes its name."""
    kept = dict(theirs)
    for name, original in copies.items():
        if name in kept and not torch.equal(copy := kept.pop(name), kept.setdefault(original, copy)):
            raise CheckpointError(
                f"{where}: `{name}` differs from `{original}`", "only a model in which the two are one can be imported"
            )
    return kept


def check(tensors: Collection[str], expected: Collection[str], where: str) -> None:
    """Exactly these tensors and no others."""
    missing, extra = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    if missing or extra:
        problem = f"lacks {listed(missing)}" if missing else f"has {listed(extra)}, which the configuration does not"
        raise CheckpointError(f"{where} {problem}", HINT)


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
