"""Convert ViT (ViTForImageClassification, ViTModel) to our format and back.

Surprise: a ViTModel has no head, and its tensor names lack the prefix `vit.`. It becomes a model with n_classes = 0.
Its pooler, used only in pretraining, is dropped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.bert import prefix_in
from clearformer.interop.huggingface.class_names import class_settings, count_classes
from clearformer.interop.huggingface.folder import Shapes, exporter, importer
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    require_fields,
    require_settings,
)
from clearformer.interop.names import Rows, Table, block_rows, inside, rows_of, to_ours, to_theirs
from clearformer.models.vit import ViTConfig

CONFIG = {
    "image_size": "size",
    "num_channels": "channels",
    "patch_size": "patch",
    "num_hidden_layers": "n_layers",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_attention_heads": "n_heads",
    "hidden_act": "activation",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}
SWITCHES = {"qkv_bias": True}
FIXED: dict[str, Any] = {"pooling": "class", "activation_dropout": 0.0}  # the same in every ViT of Hugging Face

PREFIX, HEAD, POOLER = "vit.", "classifier.", "pooler."
PATCHES: Rows = {
    "patches.class_token": ("embeddings.cls_token",),
    "patches.positions": ("embeddings.position_embeddings",),
    **rows_of({"patches.conv.": "embeddings.patch_embeddings.projection."}),
}
BLOCK: Table = {
    "add_attn.norm.": "layernorm_before.",
    "attn.qkv.": ("attention.attention.query.", "attention.attention.key.", "attention.attention.value."),
    "attn.out.": "attention.output.dense.",
    "add_mlp.norm.": "layernorm_after.",
    "mlp.up.": "intermediate.dense.",
    "mlp.down.": "output.dense.",
}


def import_config(theirs: Mapping[str, Any], where: str) -> ViTConfig:
    require_settings(theirs, SWITCHES, where)
    ours = our_settings(theirs, CONFIG, where)
    return ViTConfig.parse(
        {**ours, **FIXED, "activation": import_activation(ours["activation"], ACTIVATIONS, where)}, where
    )


def complete(config: ViTConfig, shapes: Shapes, folder: Path) -> ViTConfig:
    """Set the number of classes in the configuration to the number of rows of the head."""
    return config.changed(n_classes=count_classes(shapes, f"{HEAD}weight"))


def export_config(config: ViTConfig, classes: Sequence[str] = ()) -> dict[str, Any]:
    if config.pooling != FIXED["pooling"]:
        raise CheckpointError(
            f"the ViT of transformers has no pooling = {config.pooling}, which this model has",
            "export it with --format onnx, or train again with --exportable",
        )
    require_fields(fields := config.model_dump(), FIXED, "ViT")
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification" if config.n_classes else "ViTModel"],
        **{name: fields[field] for name, field in CONFIG.items()},
        "hidden_act": export_activation(config.activation, ACTIVATIONS, "ViT"),
        **SWITCHES,
        **class_settings(classes),
    }


def import_weights(theirs: Mapping[str, Tensor], config: ViTConfig, where: str) -> dict[str, Tensor]:
    prefix = prefix_in(theirs, PREFIX)
    tensors = {name: tensor for name, tensor in theirs.items() if not name.startswith(f"{prefix}{POOLER}")}
    return to_ours(tensors, tensor_rows(config, prefix), where)


def export_weights(ours: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: ViTConfig, prefix: str | None = None) -> Rows:
    """Return the table rows for all tensors. Names outside the head start with `prefix`, by default Hugging Face's."""
    if prefix is None:
        prefix = PREFIX if config.n_classes else ""
    body: Rows = {
        **PATCHES,
        **block_rows("encoder.blocks.", "encoder.layer.", config.n_layers, BLOCK),
        **rows_of({"encoder.norm.": "layernorm."}),
    }
    return {**inside("", prefix, body), **(rows_of({"classifier.": HEAD}) if config.n_classes else {})}


read_model_config, import_folder = importer("vit", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
