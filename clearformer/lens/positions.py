"""What the positions of a trained model look like, and whether a shift by k is a rotation.

similarity   cos(P[p], P[q])                              a band along the diagonal: near positions are similar
shift        PE(p + k) = T_k PE(p), T_k a rotation        sinusoids: exact (layers/positions.py, course notes)
             R_k = argmin Σ |P[p + k] − R P[p]|²          learned vectors: the best rotation, from even positions p
error        Σ |P[p + k] − R_k P[p]|² / Σ |P[p + k]|²     at odd p: 0 if a rotation explains the shift, 1 if zero
                                                          would do as well
rotary       mean_i cos ω_i (p − q)                       the similarity of one vector, rotated by p and by q
alibi, t5    b_h(distance)                                a bias on the attention scores of head h
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.errors import ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.layers.patches import Patches
from clearformer.layers.positions import Alibi, Learned, Positions, Relative, Rotary, Sinusoidal, frequencies
from clearformer.wording import count

SHOWN = 128  # positions of a similarity matrix
SHIFTS = (1, 2, 5, 10, 20)
REACH = 64  # the largest distance of a bias


@torch.no_grad()
def positions(handle: Handle) -> dict[str, Any]:
    """Return similarities, norms and shifts, or biases, of all position encodings of a model."""
    encodings = {path: one for path, one in handle.model.named_modules() if isinstance(one, Positions)}
    tables = [look(path, one) for path, one in encodings.items() if type(one) is not Positions]
    for path, module in handle.model.named_modules():
        if isinstance(module, Patches):  # positions on a grid: a shift in reading order has no meaning
            table = module.positions.double().flatten(0, -2)
            tables.append({"name": path, "kind": "learned", **of_table(table, None), "shifts": {}})
    if not tables:
        raise ConfigError(f"{handle.name} has no position encoding", "choose a Transformer")
    return {"title": f"Positions of {handle.name}", "encodings": tables}


@torch.no_grad()
def tables(handle: Handle) -> dict[str, Tensor]:
    """Return the vectors (N, D) of the first positions, by the name of their encoding.

    The vectors of rotary positions are the cosines and then the sines of their angles. Biases have none.
    """
    rows = {}
    for path, module in handle.model.named_modules():
        if isinstance(module, Sinusoidal | Learned):
            rows[path] = table_of(module)[0][:SHOWN]
        elif isinstance(module, Rotary):
            rows[path] = torch.cat(module.rotation(torch.arange(SHOWN)), 1)
        elif isinstance(module, Patches):
            rows[path] = module.positions.flatten(0, -2)[:SHOWN]
    return rows


@torch.no_grad()
def shift_of(handle: Handle, k: int, name: str | None = None, features: int = 64) -> dict[str, Any]:
    """Return T_k or R_k of one encoding: its error, its angles, and its rows and columns for the first `features`.

    The features of sinusoids are ordered in pairs of sine and cosine, whatever their layout: T_k rotates each pair.
    """
    known = {path: one for path, one in handle.model.named_modules() if isinstance(one, Sinusoidal | Learned)}
    if not known:
        raise ConfigError(f"{handle.name} has no position vectors, which a shift could rotate", "choose another model")
    if name is not None and name not in known:
        raise ConfigError(f"{handle.name} has no position vectors called `{name}`", suggest(name, known))
    path = name or next(iter(known))
    table, layout = table_of(known[path])
    if k > (most := largest_shift(table)):
        message = f"{path} has {count(len(table), 'position')}: a shift by {k} is too large"
        raise ConfigError(message, f"choose from 1 to {most}")
    T, is_exact = shift_by(table, layout, k)
    width = table.size(1)
    pairs = torch.arange(width).view(2, -1).T.flatten() if is_exact and layout == "halves" else torch.arange(width)
    shown = pairs[:features]
    return {
        "name": path,
        "k": k,
        "error": shift_error(table, T, k),
        "is_exact": is_exact,
        "angles": angles(T),
        "features": shown.tolist(),
        "matrix": T[shown][:, shown].tolist(),
    }


def table_of(encoding: Sinusoidal | Learned) -> tuple[Tensor, str | None]:
    """Return the vectors (N, D) of an encoding, and the layout of sinusoids."""
    if isinstance(encoding, Sinusoidal):
        return encoding.table.double(), find_layout(encoding.table)
    return encoding.table.weight[encoding.offset :].double(), None


def largest_shift(table: Tensor) -> int:
    """Return the largest k for which a rotation can be fitted at some positions and measured at others."""
    return (len(table) - 2) // 2


def shift_by(table: Tensor, layout: str | None, k: int) -> tuple[Tensor, bool]:
    """Return T_k of sinusoids, which is exact, or the best rotation R_k of other vectors; and which of them it is."""
    if layout is not None and table.size(1) % 2 == 0:
        return rotation(k, table.size(1), layout), True
    return best_rotation(table, k), False


def look(path: str, encoding: Positions) -> dict[str, Any]:
    match encoding:
        case Sinusoidal() | Learned():
            kind = "sinusoidal" if isinstance(encoding, Sinusoidal) else "learned"
            return {"name": path, "kind": kind, **of_table(*table_of(encoding))}
        case Rotary():
            return {"name": path, "kind": "rotary", **of_rotary(encoding)}
        case Alibi() | Relative():
            kind = "alibi" if isinstance(encoding, Alibi) else "t5"
            return {"name": path, "kind": kind, **of_bias(encoding)}
    raise ConfigError(f"{path} is a position encoding of an unknown kind", "choose another model")


def of_table(table: Tensor, layout: str | None) -> dict[str, Any]:
    """Describe vectors (N, D). `layout` is the layout of sinusoids, whose T_k is known; else a rotation is fitted."""
    shown = F.normalize(table[:SHOWN], dim=1)
    matrices = {k: shift_by(table, layout, k) for k in SHIFTS if k <= largest_shift(table)}
    return {
        "n_positions": len(table),
        "similarity": (shown @ shown.T).tolist(),
        "norms": table[:SHOWN].norm(dim=1).tolist(),
        "shifts": {
            str(k): {"error": shift_error(table, T, k), "is_exact": is_exact, "angles": angles(T)}
            for k, (T, is_exact) in matrices.items()
        },
    }


def rotation(k: int, width: int, layout: str) -> Tensor:
    """Return T_k for sinusoids, (D, D): [sin, cos](p + k) = [[cos ωk, sin ωk], [−sin ωk, cos ωk]] [sin, cos](p)."""
    omega = frequencies(width) * k
    n = width // 2
    sines = torch.arange(n) * 2 if layout == "interleaved" else torch.arange(n)
    cosines = sines + (1 if layout == "interleaved" else n)
    T = torch.zeros(width, width, dtype=torch.float64)
    T[sines, sines], T[sines, cosines] = omega.cos(), omega.sin()
    T[cosines, sines], T[cosines, cosines] = -omega.sin(), omega.cos()
    return T


def best_rotation(table: Tensor, k: int) -> Tensor:
    """Return the orthogonal matrix R (D, D) that maps P[p] nearest to P[p + k] over even p (Schönemann 1966)."""
    before, after = table[:-k:2], table[k::2][: len(table[:-k:2])]
    U, _, Vt = torch.linalg.svd(after.T @ before)
    return U @ Vt


def shift_error(table: Tensor, R: Tensor, k: int) -> float:
    before, after = table[1:-k:2], table[k + 1 :: 2]
    return float((after - before @ R.T).square().sum() / after.square().sum())


def angles(R: Tensor) -> list[float]:
    """Return the angles of a rotation, in radians, from large to small: one for each plane that it turns."""
    turned = torch.linalg.eigvals(R).angle()
    return turned[turned > 1e-9].sort(descending=True).values.tolist()


def of_rotary(encoding: Rotary) -> dict[str, Any]:
    omega = frequencies(encoding.d_head, encoding.base)
    distance = torch.arange(SHOWN)[:, None] - torch.arange(SHOWN)
    similarity = (distance[:, :, None] * omega).cos().mean(-1)
    return {
        "similarity": similarity.tolist(),
        "by_distance": similarity[0].tolist(),
        "wavelengths": (2 * torch.pi / omega).tolist(),  # in tokens
    }


def of_bias(encoding: Positions) -> dict[str, Any]:
    """Return the bias of each head by distance: negative towards the past, (H, 2 · REACH + 1)."""
    distance = torch.arange(-REACH, REACH + 1)
    device = next((tensor.device for tensor in (*encoding.parameters(), *encoding.buffers())), None)
    query, keys = torch.tensor([REACH], device=device), torch.arange(2 * REACH + 1, device=device)
    bias = encoding.bias(query, keys)
    assert bias is not None
    return {"distance": distance.tolist(), "bias": bias[:, 0].double().tolist()}


def find_layout(table: Tensor) -> str:
    """Return the layout of a table of sinusoids: at position 0, sines are 0 and cosines 1."""
    return "interleaved" if table.size(1) < 2 or table[0, 1] == 1 else "halves"
