"""How position encodings represent a position and the distance between two positions.

sinusoidal    PE(p)·PE(p + k) = Σ_i cos ω_i k, the same for every p;  PE(p + k) = T_k PE(p)
rotary        the dot product of two vectors rotated by p and p + k is also a function of k only
learned       unrelated vectors before training
alibi, t5     no vectors, but a bias on the attention scores: −m_h · k, or a learned value for each bucket of distances
"""

from typing import Any

import torch
from torch.nn.functional import cosine_similarity

from clearformer.layers.positions import Alibi, Learned, Relative, Rotary, rotate, shift_matrix, sinusoids

T, D, H = 100, 64, 8  # positions, width, heads
FROM = (0, 37)  # two reference positions
SHIFT = 5
SMALL = 16  # the width of the T_k in the figure
PAIR = 1  # the pair of features whose rotation by T_k is plotted


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot positions` shows."""
    torch.manual_seed(seed)
    places, table, reach = torch.arange(T), sinusoids(T, D), T - max(FROM)
    same = torch.randn(D, dtype=torch.float64).expand(1, 1, T, D)
    vectors = {
        "sinusoidal": table,
        "rotary, of one vector": rotate(same, Rotary(D).rotation(places))[0, 0],
        "learned, before training": Learned(D, T).table.weight.detach(),
    }
    similarity = {
        name: {str(p): cosine_similarity(rows[p], rows[p : p + reach]).tolist() for p in FROM}
        for name, rows in vectors.items()
    }
    error = (table[SHIFT:] - table[:-SHIFT] @ shift_matrix(SHIFT, D).T).abs().max().item()
    ahead = torch.arange(1 - T, T)
    return {
        "title": f"PE(p + {SHIFT}) = T PE(p) with one rotation T for every p, to within {error:.0e}",
        "seed": seed,
        "table": table.tolist(),
        "likeness": similarity,
        "shift": SHIFT,
        "shift_error": error,
        "shift_matrix": shift_matrix(SHIFT, SMALL).tolist(),
        "pair": PAIR,
        "circle": sinusoids(4 * SHIFT + 1, SMALL)[:, 2 * PAIR : 2 * PAIR + 2].tolist(),
        "alibi": Alibi(H).bias(places[:1], places)[:, 0].tolist(),
        "ahead": ahead.tolist(),
        "t5_bucket": Relative(H).bucket(ahead).tolist(),
    }
