"""The layer that a weight belongs to, by its name.

encoder.blocks.3.attn.out.weight      encoder.blocks.3 and attn.out
layers.weights.weight_hh_l1_reverse   layers.l1_reverse and weight_hh
embedding.weight                      embedding and weight
"""

import re

LAYER = re.compile(r"(.*?\.\d+(?:\.\d+)*)\.(.+)")
RECURRENT = re.compile(r"(.*)\.weights\.((?:weight|bias)_[ih]h)_(l\d+(?:_reverse)?)")


def place_of(name: str) -> tuple[str, str]:
    """Split the name of a weight into its layer and its kind: ("encoder.blocks.3", "attn.out")."""
    if match := RECURRENT.fullmatch(name):
        path, kind, layer = match.groups()
        return f"{path}.{layer}", kind
    layer, kind = match.groups() if (match := LAYER.fullmatch(name)) else name.rpartition(".")[::2]
    return layer or "model", kind.removesuffix(".weight")
