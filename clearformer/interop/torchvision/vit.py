"""Convert torchvision's ViT to our format and back. No tensor shows the number of heads; the width determines it."""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch

from clearformer.interop.names import Rows, Table, block_rows, rows_of
from clearformer.models.vit import ViTConfig

FIXED: dict[str, Any] = {"pooling": "class", "activation": "gelu", "norm_eps": 1e-6}
HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}
LAYER = "encoder.layers.encoder_layer_"
WHOLE = {"patches.conv.": "conv_proj.", "encoder.norm.": "encoder.ln.", "classifier.": "heads.head."}
BLOCK: Table = {
    "add_attn.norm.": "ln_1.",
    "attn.qkv.": "self_attention.in_proj_",  # stacked, as in ours
    "attn.out.": "self_attention.out_proj.",
    "add_mlp.norm.": "ln_2.",
    "mlp.up.": "mlp.0.",
    "mlp.down.": "mlp.3.",
}


def matches(shapes: Mapping[str, torch.Size]) -> bool:
    return "encoder.pos_embedding" in shapes


def read(shapes: Mapping[str, torch.Size]) -> ViTConfig:
    d_model, channels, patch, _ = shapes["conv_proj.weight"]
    return ViTConfig(
        size=isqrt(shapes["encoder.pos_embedding"][1] - 1) * patch,
        channels=channels,
        patch=patch,
        n_layers=len({name.split(".")[2] for name in shapes if name.startswith(LAYER)}),
        d_model=d_model,
        d_ff=shapes[f"{LAYER}0.mlp.0.weight"][0],
        n_heads=HEADS[d_model],
        n_classes=shapes["heads.head.weight"][0],
    )


def tensor_rows(config: ViTConfig) -> Rows:
    return {
        "patches.class_token": ("class_token",),
        "patches.positions": ("encoder.pos_embedding",),
        **rows_of(WHOLE),
        **block_rows("encoder.blocks.", LAYER, config.n_layers, BLOCK),
    }
