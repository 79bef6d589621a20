"""Two columns of names, ours and theirs, and the tensors that pass between them.

    ours                                theirs
    encoder.blocks.0.attn.qkv.weight    model.encoder.layers.0.self_attn.{q,k,v}_proj.weight
    encoder.blocks.0.mlp.up.weight      model.encoder.layers.0.fc1.weight

A row names one tensor of ours and those of theirs that it is made of, stacked in this order along the first dimension.
Nothing is computed on the way: what goes over and comes back is the same, bit by bit.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from clearformer.errors import CheckpointError

Rows = dict[str, tuple[str, ...]]
Table = Mapping[str, str | tuple[str, ...]]
KINDS = ("weight", "bias")


def inside(ours: str, theirs: str, table: Table) -> Rows:
    """The table of a module as the module around it says it: both prefixes written out."""
    return {
        f"{ours}{left}": tuple(f"{theirs}{name}" for name in ([right] if isinstance(right, str) else right))
        for left, right in table.items()
    }


def rows_of(table: Table) -> Rows:
    """The rows of a table of layers, once for weight and once for bias."""
    layers = inside("", "", table).items()
    return {f"{left}{kind}": tuple(f"{name}{kind}" for name in right) for left, right in layers for kind in KINDS}


def block_rows(ours: str, theirs: str, n_blocks: int, block: Table) -> Rows:
    """The rows of a stack of equal blocks, numbered from 0 on both sides."""
    rows: Rows = {}
    for i in range(n_blocks):
        rows |= rows_of(inside(f"{ours}{i}.", f"{theirs}{i}.", block))
    return rows


def to_ours(theirs: Mapping[str, Tensor], rows: Rows, where: str) -> dict[str, Tensor]:
    """Their tensors under our names. One that is missing, or that no row speaks of, is named in the error."""
    check(theirs, {name for names in rows.values() for name in names}, where)
    return {ours: torch.cat([theirs[name] for name in names]) for ours, names in rows.items()}


def to_theirs(ours: Mapping[str, Tensor], rows: Rows, where: str) -> dict[str, Tensor]:
    """Our tensors under their names; a stacked one is cut into equal parts."""
    check(ours, rows, where)
    return {name: part.clone() for own, names in rows.items() for name, part in zip(names, ours[own].chunk(len(names)))}


def check(tensors: Collection[str], expected: Collection[str], where: str) -> None:
    """Exactly these tensors and no others."""
    missing, extra = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    if missing or extra:
        problem = f"lacks {listed(missing)}" if missing else f"has {listed(extra)}, which the configuration does not"
        raise CheckpointError(f"{where} {problem}", "weights and configuration must belong to the same model")


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
