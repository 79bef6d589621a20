"""The attention pattern of every layer and head on one text: encoder, decoder and cross-attention.

    A = softmax(Q K' / √d_k + mask)      A_ts: how much position t attends to position s; each row sums to 1

The pattern is computed from queries and keys beside the fused kernel (session.py). The columns of a learned prefix come
first. A decoder's self-attention is masked: position t attends to the positions up to t.
"""

from typing import Any

import torch

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.lens.points import points
from clearformer.lens.reading import Reading
from clearformer.wording import count

MOST = 512  # tokens per axis: a map of each head has the square of this number of cells


def attention_maps(reading: Reading, layer: str | None = None) -> dict[str, Any]:
    """Return the patterns (H, T, S) of all layers, or of one, as nested lists with the names of rows and columns."""
    names = [name for name in points(reading.model) if name.rpartition(".")[2] == "pattern"]
    if not names:
        raise ConfigError(f"{reading.name} has no attention", "choose a Transformer or a `bahdanau` model")
    layers = [name.removesuffix(".pattern") for name in names]
    if layer is not None:
        chosen = layer.removesuffix(".pattern")
        if chosen not in layers:
            raise ConfigError(f"{reading.name} has no attention layer `{layer}`", suggest(chosen, layers))
        layers = [chosen]
    if (n := max(len(reading.target), len(reading.source or []))) > MOST:
        raise DataError(f"the text has {count(n, 'token')}; a map can show at most {MOST}", "give a shorter text")
    _, look = reading.look(keep=[f"{name}.pattern" for name in layers])
    maps = [one_map(reading, name, look[f"{name}.pattern"]) for name in layers]
    return {
        "title": f"Attention of {reading.name}",
        "layers": maps,
        "layer": last_layer(layers),
    }


def one_map(reading: Reading, layer: str, recorded: Any) -> dict[str, Any]:
    """Return the map of a layer. A recurrent decoder records one row for each token it writes."""
    pattern = torch.cat(recorded, dim=1) if isinstance(recorded, list) else recorded
    if pattern.dim() == 3:  # (B, T, S): additive attention has a single head
        pattern = pattern[:, None]
    rows, columns = reading.axes_of(f"{layer}.pattern")
    n_prefix = pattern.size(3) - len(columns)
    return {
        "name": layer,
        "rows": rows,
        "columns": [*(f"prefix {i}" for i in range(n_prefix)), *columns],
        "pattern": pattern[0].float().tolist(),
    }


def last_layer(layers: list[str]) -> str:
    """The layer that a figure shows: the last cross-attention, which aligns source and translation, else the last."""
    return ([name for name in layers if name.endswith("cross")] or layers)[-1]
