"""Convert Marian, the translation models of Helsinki-NLP/opus-mt, to our format and back.

Marian is the Transformer of Vaswani et al. 2017: post-norm, no final norm, embeddings scaled by √D, and sinusoidal
positions with all sines before all cosines. Surprises: a translation starts with the padding token, which is therefore
the `first` token of a search; and the bias of the head, `final_logits_bias`, is constant in Marian but trained here.

The default of Clearformer is another order of the sinusoids: sine, cosine, sine, cosine …. Such a model is exported
with its D features in Marian's order, in every tensor that reads or writes them; the function does not change.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import exporter, importer
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    plain_heads,
    require_fields,
    resolved_fields,
)
from clearformer.interop.names import Rows, Table, block_rows, inside, to_ours, to_theirs
from clearformer.models.transformer import TransformerConfig

CONFIG = {
    "vocab_size": "source_vocab",
    "decoder_vocab_size": "target_vocab",
    "encoder_layers": "n_encoder_layers",
    "decoder_layers": "n_decoder_layers",
    "d_model": "d_model",
    "encoder_ffn_dim": "d_ff",
    "decoder_ffn_dim": "d_ff",
    "encoder_attention_heads": "n_heads",
    "decoder_attention_heads": "n_heads",
    "activation_function": "activation",
    "max_position_embeddings": "max_length",
    "scale_embedding": "scale_embedding",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "swish": "silu", "silu": "silu"}
SHARE = {(True, True): "all", (False, True): "decoder", (False, False): "none"}  # (encoder and decoder tied, head tied)
FIXED: dict[str, Any] = {  # the same in every Marian
    "residual": "post",
    "final_norm": False,
    "norm": "layer",
    "bias": True,
    "positions": {"kind": "sinusoidal", "layout": "halves"},
}
POSITIONS = {"positions": {"kind": "sinusoidal"}}  # in an exported model, of either layout

SHARED, SOURCE, TARGET = "model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
HEAD, HEAD_BIAS = "lm_head.weight", "final_logits_bias"
EMBEDDINGS: dict[str, Rows] = {
    "all": {"target_embedding.weight": (SHARED,)},
    "decoder": {"target_embedding.weight": (TARGET,), "source_embedding.weight": (SOURCE,)},
    "none": {
        "target_embedding.weight": (TARGET,),
        "source_embedding.weight": (SOURCE,),
        "unembedding.weight": (HEAD,),
    },
}
COPIES = {"all": (SHARED, TARGET, HEAD, SOURCE), "decoder": (TARGET, HEAD), "none": ()}  # names of the same tensor
ATTENTION: Table = {"qkv.": ("q_proj.", "k_proj.", "v_proj."), "out.": "out_proj."}
ENCODER: Table = {
    **inside("attn.", "self_attn.", ATTENTION),
    "add_attn.norm.": "self_attn_layer_norm.",
    "mlp.up.": "fc1.",
    "mlp.down.": "fc2.",
    "add_mlp.norm.": "final_layer_norm.",
}
DECODER: Table = {
    **ENCODER,
    **inside("cross.", "encoder_attn.", ATTENTION),
    "add_cross.norm.": "encoder_attn_layer_norm.",
}


def import_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """Convert config.json to our configuration. A setting that we do not support raises an error."""
    tied = theirs.get("share_encoder_decoder_embeddings", True), theirs.get("tie_word_embeddings", True)
    if tied not in SHARE:
        raise CheckpointError(
            f"{where}: the source and target embeddings are tied, but `tie_word_embeddings` is false",
            "with tied embeddings, only a tied head can be imported",
        )
    theirs = {"attention_dropout": 0.0, "activation_dropout": 0.0, **theirs}
    if tied == (True, True) or theirs.get("decoder_vocab_size") is None:
        theirs["decoder_vocab_size"] = theirs.get("vocab_size")
    ours = our_settings(theirs, CONFIG, where)
    ours["activation"] = import_activation(ours["activation"], ACTIVATIONS, where)
    return TransformerConfig.parse({**ours, **FIXED, "share": SHARE[tied], "head_bias": True}, where)


def export_config(config: TransformerConfig, pad: int, eos: int, first: int) -> dict[str, Any]:
    """Return Marian's config.json. Unsupported settings raise an error. Translations start with token `first`."""
    fields = resolved_fields(config)
    fixed = {**FIXED, **POSITIONS, **plain_heads(config)}
    require_fields(fields, {**fixed, "first_norm": False, "norm_eps": 1e-5, "scale_head": False}, "Marian")
    ties = {share: tied for tied, share in SHARE.items()}
    if config.share not in ties:
        raise CheckpointError(
            f"Marian does not support share = {config.share}", f"the supported values are {', '.join(ties)}"
        )
    with_decoder, with_head = ties[config.share]
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **{name: fields[field] for name, field in CONFIG.items()},
        "activation_function": export_activation(config.activation, ACTIVATIONS, "Marian"),
        "share_encoder_decoder_embeddings": with_decoder,
        "tie_word_embeddings": with_head,
        **first_and_last(pad, eos, first),
    }


def first_and_last(pad: int, eos: int, first: int) -> dict[str, Any]:
    """Return the entries of config.json for the special tokens of a translation."""
    return {
        "pad_token_id": pad,
        "eos_token_id": eos,
        "decoder_start_token_id": first,
        "forced_eos_token_id": None,  # otherwise a translation cut off at the maximum length ends with token 0
    }


def import_weights(theirs: Mapping[str, Tensor], config: TransformerConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format. Copies of tied tensors and tables of sinusoids, if present, are dropped."""
    tensors, bias = without_constants(theirs, config)
    return {**to_ours(tensors, tensor_rows(config), where), "unembedding.bias": bias}


def without_constants(theirs: Mapping[str, Tensor], config: TransformerConfig) -> tuple[dict[str, Tensor], Tensor]:
    """Return the tensors without copies and tables of sinusoids, and the bias of the head, which is zero if absent."""
    names = [name for name in COPIES[config.share] if name in theirs]
    unused = {*names, *(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))}
    tensors = {name: tensor for name, tensor in theirs.items() if name not in unused}
    if names:
        tensors[COPIES[config.share][0]] = theirs[names[0]]
    return tensors, tensors.pop(HEAD_BIAS, torch.zeros(1, config.target_vocab)).flatten()


def export_weights(ours: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Convert our tensors to Marian's. A model without a head bias is exported with a zero bias."""
    tensors, bias = in_halves(ours, config)
    return {**to_theirs(tensors, tensor_rows(config), "the model"), HEAD_BIAS: bias}


def in_halves(ours: Mapping[str, Tensor], config: TransformerConfig) -> tuple[dict[str, Tensor], Tensor]:
    """Return our tensors with sines before cosines, and the bias (1, V) of the head, which is zero if it has none."""
    tensors, order = dict(ours), torch.arange(config.d_model)
    bias = tensors.pop("unembedding.bias", tensors["target_embedding.weight"].new_zeros(config.target_vocab))
    if config.positions.layout == "interleaved":
        order = torch.cat([order[::2], order[1::2]])
    return {name: reordered(name, tensor, order) for name, tensor in tensors.items()}, bias[None].clone()


def reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Reorder the D features that a tensor writes, along its first dimension, or reads, along its second."""
    layer, kind = name.split(".")[-2:]
    if layer in ("out", "down", "norm"):
        return tensor[order]
    return tensor if kind == "bias" else tensor[:, order]  # qkv, up and the embeddings


def tensor_rows(config: TransformerConfig) -> Rows:
    """Return the table rows for all tensors except the bias of the head: it is (V,) here and (1, V) in Marian."""
    return {
        **EMBEDDINGS[config.share],
        **block_rows("encoder.blocks.", "model.encoder.layers.", config.n_encoder_layers, ENCODER),
        **block_rows("decoder.blocks.", "model.decoder.layers.", config.n_decoder_layers, DECODER),
    }


read_model_config, import_folder = importer("marian", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
