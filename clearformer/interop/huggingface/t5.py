"""Convert T5 and T5 1.1 (T5ForConditionalGeneration) to our format and back.

Surprises: the relative position biases are stored in the first block of each stack, and all blocks use them; source and
target have one vocabulary; decoding starts with the padding token, which is therefore the `first` token of a search.
The tensors show whether the head is tied to the embeddings; `scale_decoder_outputs` or, in older files,
`tie_word_embeddings` says whether hidden vectors are divided by √D before the head.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import (
    HEAD,
    Reader,
    exporter,
    is_copy,
    read_config,
    read_shapes,
    read_weights,
)
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    require_fields,
    resolved_fields,
)
from clearformer.interop.names import Rows, Table, block_rows, inside, to_ours, to_theirs, without_copies
from clearformer.models.t5 import T5Config

CONFIG = {
    "vocab_size": "source_vocab",
    "num_layers": "n_encoder_layers",
    "num_decoder_layers": "n_decoder_layers",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "num_heads": "n_heads",
    "d_kv": "d_head",
    "feed_forward_proj": "activation",
    "layer_norm_epsilon": "norm_eps",
    "dropout_rate": "dropout",
    "n_positions": "max_length",
}
ACTIVATIONS = {  # other names for the same gates, such as gated-gelu_new, do not occur
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "silu": "silu",
    "gated-gelu": "geglu-tanh",
    "gated-silu": "swiglu",
}
FIXED: dict[str, Any] = {  # the same in every T5
    "residual": "pre",
    "first_norm": False,
    "final_norm": True,
    "norm": "rms",
    "bias": False,
    "head_bias": False,
    "attention_scale": 1.0,
    "scale_embedding": False,
}
POSITIONS = {"n_buckets": "relative_attention_num_buckets", "max_distance": "relative_attention_max_distance"}

SHARED = "shared.weight"
COPIES = {f"{side}.embed_tokens.weight": SHARED for side in ("encoder", "decoder")}
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # in some files, but never used
WEIGHT = ("weight",)
ATTENTION: Table = {"qkv.": ("q.", "k.", "v."), "out.": "o."}
SELF: Table = {**inside("attn.", "layer.0.SelfAttention.", ATTENTION), "add_attn.norm.": "layer.0.layer_norm."}
CROSS: Table = {**inside("cross.", "layer.1.EncDecAttention.", ATTENTION), "add_cross.norm.": "layer.1.layer_norm."}
PLAIN: Table = {"mlp.up.": "DenseReluDense.wi.", "mlp.down.": "DenseReluDense.wo.", "add_mlp.norm.": "layer_norm."}
GATED: Table = {**PLAIN, "mlp.up.": ("DenseReluDense.wi_0.", "DenseReluDense.wi_1.")}


def read_model_config(folder: Path) -> T5Config:
    """Return our configuration of a saved T5. The only tensors read are embeddings, to see whether they are tied."""
    config, shapes = read_settings(folder), read_shapes(folder)
    table = next((name for name in (SHARED, *COPIES) if name in shapes), HEAD)
    return with_tables(config, has_head=HEAD in shapes and not is_copy(folder, HEAD, table))


def import_folder(folder: Path, read: Reader = read_weights) -> tuple[T5Config, dict[str, Tensor]]:
    """Import the configuration and weights of a T5 saved by `save_pretrained`, both in our format."""
    config, weights = read_settings(folder), tables_once(read(folder), str(folder))
    config = with_tables(config, has_head=HEAD in weights)
    return config, import_weights(weights, config, str(folder))


def read_settings(folder: Path) -> T5Config:
    return import_config(read_config(folder, "t5"), str(folder / "config.json"))


def with_tables(config: T5Config, has_head: bool) -> T5Config:
    """Tie the source and target embeddings in the configuration, and the head too unless it has its own matrix."""
    return config.changed(share="embeddings" if has_head else "all")


def import_config(theirs: Mapping[str, Any], where: str) -> T5Config:
    """Convert config.json to our configuration, with a tied head. A setting that we do not support raises an error."""
    defaults = {"num_decoder_layers": theirs.get("num_layers"), "n_positions": 512, "feed_forward_proj": "relu"}
    defaults |= {
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
    }
    theirs = {**defaults, **{name: value for name, value in theirs.items() if value is not None}}
    ours = our_settings(theirs, CONFIG, where)
    return T5Config.parse(
        {
            **ours,
            **FIXED,
            "activation": import_activation(ours["activation"], ACTIVATIONS, where),
            "target_vocab": ours["source_vocab"],
            "attention_dropout": ours["dropout"],
            "activation_dropout": ours["dropout"],
            "positions": {"kind": "t5", **{field: theirs[name] for field, name in POSITIONS.items()}},
            "share": "all",
            "scale_head": theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True)),
        },
        where,
    )


def export_config(config: T5Config, pad: int, eos: int, first: int | None = None) -> dict[str, Any]:
    """Return T5's config.json. Unsupported settings raise an error. Decoding starts with `first`, by default `pad`."""
    fields = resolved_fields(config)
    heads = {"n_kv_heads": config.n_heads, "d_value": config.head_width}
    require_fields(fields, {**FIXED, **heads, "begins_with": "pad", "positions": {"kind": "t5"}}, "T5")
    if not config.shares_embeddings:
        raise CheckpointError(
            f"T5 does not support share = {config.share}", "only models with share = embeddings or all can be exported"
        )
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **{name: fields[field] for name, field in CONFIG.items()},
        **{name: getattr(config.positions, field) for field, name in POSITIONS.items()},
        "feed_forward_proj": export_activation(config.activation, ACTIVATIONS, "T5"),
        "scale_decoder_outputs": config.scale_head,
        "tie_word_embeddings": config.scale_head,  # older versions of transformers have one setting for both
        "pad_token_id": pad,
        "eos_token_id": eos,
        "decoder_start_token_id": pad if first is None else first,
    }


def tables_once(theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Keep the tied embedding under one name only, and the matrix of the head only if it differs."""
    tensors = without_copies({name: tensor for name, tensor in theirs.items() if name != UNUSED}, COPIES, where)
    is_tied = HEAD in tensors and torch.equal(tensors[HEAD], tensors.get(SHARED, tensors[HEAD]))
    return without_copies(tensors, {HEAD: SHARED}, where) if is_tied else tensors


def import_weights(theirs: Mapping[str, Tensor], config: T5Config, where: str) -> dict[str, Tensor]:
    return to_ours(tables_once(theirs, where), tensor_rows(config), where)


def export_weights(ours: Mapping[str, Tensor], config: T5Config) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: T5Config) -> Rows:
    forward = GATED if config.activation in ("geglu-tanh", "swiglu") else PLAIN
    blocks = {"encoder": {**SELF, **inside("", "layer.1.", forward)}}
    blocks["decoder"] = {**SELF, **CROSS, **inside("", "layer.2.", forward)}
    rows: Rows = {"target_embedding.weight": (SHARED,)}
    for side, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rows |= {
            f"{side}.positions.weight.weight": (first,),
            f"{side}.norm.weight": (f"{side}.final_layer_norm.weight",),
        }
        rows |= block_rows(f"{side}.blocks.", f"{side}.block.", n_layers, blocks[side], WEIGHT)
    return rows if config.share == "all" else {**rows, "unembedding.weight": (HEAD,)}


export_folder = exporter(export_config, export_weights)
