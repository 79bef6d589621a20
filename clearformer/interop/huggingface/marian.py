"""Marian, the translation models of Helsinki-NLP/opus-mt and their kin, to ours and back.

Marian is the Transformer of the paper: post-norm, no norm at the end, √D on the embeddings, and sinusoids with all
sines before all cosines. What would surprise: a translation starts with the padding token, so that is what a search
takes as `first`; and the head's bias, `final_logits_bias`, is a constant there and a parameter here.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import exporter, importer
from clearformer.interop.huggingface.settings import fit, our_settings, our_word, plain_heads, their_word, written_out
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
SHARE = {(True, True): "all", (False, True): "decoder", (False, False): "none"}  # encoder with decoder, with head
FIXED: dict[str, Any] = {  # what every Marian is
    "residual": "post",
    "final_norm": False,
    "norm": "layer",
    "bias": True,
    "positions": {"kind": "sinusoidal", "layout": "halves"},
}

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
COPIES = {"all": (SHARED, TARGET, HEAD, SOURCE), "decoder": (TARGET, HEAD), "none": ()}  # one tensor, any of its names
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
    """What config.json says; what our configuration has no word for is refused."""
    tied = theirs.get("share_encoder_decoder_embeddings", True), theirs.get("tie_word_embeddings", True)
    if tied not in SHARE:
        raise CheckpointError(
            f"{where}: `tie_word_embeddings` is false although the embeddings of both sides are shared",
            "only a head that shares them too can be imported",
        )
    theirs = {"attention_dropout": 0.0, "activation_dropout": 0.0, **theirs}
    if tied == (True, True) or theirs.get("decoder_vocab_size") is None:
        theirs["decoder_vocab_size"] = theirs.get("vocab_size")
    ours = our_settings(theirs, CONFIG, where)
    ours["activation"] = our_word(ours["activation"], ACTIVATIONS, where)
    return TransformerConfig.parse({**ours, **FIXED, "share": SHARE[tied], "head_bias": True}, where)


def export_config(config: TransformerConfig, pad: int, eos: int, first: int) -> dict[str, Any]:
    """config.json of the same model, where Marian has one; `first` is the token a translation starts with."""
    fields = written_out(config)
    fit(fields, {**FIXED, **plain_heads(config), "first_norm": False, "norm_eps": 1e-5, "scale_head": False}, "Marian")
    ties = {share: tied for tied, share in SHARE.items()}
    if config.share not in ties:
        raise CheckpointError(f"Marian knows no model with share = {config.share}", f"known are: {', '.join(ties)}")
    with_decoder, with_head = ties[config.share]
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **{name: fields[own] for name, own in CONFIG.items()},
        "activation_function": their_word(config.activation, ACTIVATIONS, "Marian"),
        "share_encoder_decoder_embeddings": with_decoder,
        "tie_word_embeddings": with_head,
        "pad_token_id": pad,
        "eos_token_id": eos,
        "decoder_start_token_id": first,
        "forced_eos_token_id": None,  # else token 0 is what a translation cut at its limit ends with
    }


def import_weights(theirs: Mapping[str, Tensor], config: TransformerConfig, where: str) -> dict[str, Tensor]:
    """Under our names. Copies of a tied tensor and tables of sinusoids, which some files hold, are left out."""
    names = [name for name in COPIES[config.share] if name in theirs]
    surplus = {*names, *(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))}
    kept = {name: tensor for name, tensor in theirs.items() if name not in surplus}
    if names:
        kept[COPIES[config.share][0]] = theirs[names[0]]
    bias = kept.pop(HEAD_BIAS, torch.zeros(1, config.target_vocab))  # may be absent: then it is zero
    return {**to_ours(kept, tensor_rows(config), where), "unembedding.bias": bias.flatten()}


def export_weights(ours: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Under their names. A model without a head bias gets one of zeros."""
    kept = {name: tensor for name, tensor in ours.items() if name != "unembedding.bias"}
    table = kept["target_embedding.weight"]
    bias = ours["unembedding.bias"] if config.head_bias else table.new_zeros(config.target_vocab)
    return {**to_theirs(kept, tensor_rows(config), "the model"), HEAD_BIAS: bias[None].clone()}


def tensor_rows(config: TransformerConfig) -> Rows:
    """Every tensor but the head's bias, whose shape is (V,) here and (1, V) there."""
    return {
        **EMBEDDINGS[config.share],
        **block_rows("encoder.blocks.", "model.encoder.layers.", config.n_encoder_layers, ENCODER),
        **block_rows("decoder.blocks.", "model.decoder.layers.", config.n_decoder_layers, DECODER),
    }


read_model_config, import_folder = importer("marian", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
