"""Convert GPT-2 to our format and back.

Surprises: linear layers are `Conv1D`s, whose matrices are transposed: (in, out). Queries, keys and values are stacked
in one matrix, as in our models. Older files also contain the causal mask of each layer, as `attn.bias`. All layers have
biases, so a model of ours without biases is exported with zeros.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearformer.interop.huggingface.folder import HEAD, exporter, importer, with_head
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    plain_heads,
    require_fields,
    require_settings,
    resolved_fields,
)
from clearformer.interop.names import Rows, Table, block_rows, rows_of, to_ours, to_theirs
from clearformer.models.gpt import GPTConfig

CONFIG = {
    "vocab_size": "vocab",
    "n_layer": "n_layers",
    "n_embd": "d_model",
    "n_inner": "d_ff",
    "n_head": "n_heads",
    "n_positions": "max_length",
    "activation_function": "activation",
    "layer_norm_epsilon": "norm_eps",
    "resid_pdrop": "dropout",
    "embd_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tied",
}
DEFAULTS = {  # values that config.json may omit
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
}
ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
SWITCHES = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
FIXED: dict[str, Any] = {  # the same in every GPT-2
    "residual": "pre",
    "first_norm": False,
    "final_norm": True,
    "norm": "layer",
    "head_bias": False,
    "scale_embedding": False,
    "prompt": "causal",
    "positions": {"kind": "learned", "offset": 0},
}

BLOCK: Table = {
    "add_attn.norm.": "ln_1.",
    "attn.qkv.": "attn.c_attn.",
    "attn.out.": "attn.c_proj.",
    "add_mlp.norm.": "ln_2.",
    "mlp.up.": "mlp.c_fc.",
    "mlp.down.": "mlp.c_proj.",
}
CONV1D = ("attn.qkv.weight", "attn.out.weight", "mlp.up.weight", "mlp.down.weight")
BUFFERS = (".attn.bias", ".attn.masked_bias", "position_ids")


def import_config(theirs: Mapping[str, Any], where: str) -> GPTConfig:
    """Convert config.json to our configuration. A setting that we do not support raises an error."""
    require_settings(theirs, SWITCHES, where)
    theirs = {**DEFAULTS, **theirs}
    if theirs.get("n_inner") is None and theirs.get("n_embd") is not None:
        theirs["n_inner"] = 4 * theirs["n_embd"]
    ours = our_settings(theirs, CONFIG, where)
    return GPTConfig.parse({**ours, "activation": import_activation(ours["activation"], ACTIVATIONS, where)}, where)


def export_config(
    config: GPTConfig, bos: int | None = None, eos: int | None = None, pad: int | None = None
) -> dict[str, Any]:
    """Return GPT-2's config.json, or raise an error if GPT-2 does not support this configuration."""
    fields = resolved_fields(config)
    require_fields(fields, {**FIXED, **plain_heads(config)}, "GPT-2")
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **{name: fields[field] for name, field in CONFIG.items()},
        "n_inner": None if config.d_ff == 4 * config.d_model else config.d_ff,
        "activation_function": export_activation(config.activation, ACTIVATIONS, "GPT-2"),
        **SWITCHES,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
    }


def import_weights(theirs: Mapping[str, Tensor], config: GPTConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format. Causal masks and copies of the tied embedding, if present, are dropped."""
    rows, tensors = tensor_rows(config), with_head(theirs, "transformer.", "wte.weight")
    return to_ours(without_copies(tensors, config), rows, where, conv1d(rows))


def export_weights(ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    rows = tensor_rows(config)
    if not config.bias:
        layers = [name for name in rows if name.endswith(CONV1D)]
        zeros = {f"{name.removesuffix('weight')}bias": ours[name].new_zeros(len(ours[name])) for name in layers}
        ours = {**zeros, **ours}
    return to_theirs(ours, rows, "the model", conv1d(rows))


def tensor_rows(config: GPTConfig) -> Rows:
    return {
        "embedding.weight": ("transformer.wte.weight",),
        "decoder.positions.table.weight": ("transformer.wpe.weight",),
        **block_rows("decoder.blocks.", "transformer.h.", config.n_layers, BLOCK),
        **rows_of({"decoder.norm.": "transformer.ln_f."}),
        **({} if config.tied else {"unembedding.weight": (HEAD,)}),
    }


def conv1d(rows: Rows) -> set[str]:
    """Return the names of our tensors that GPT-2 stores transposed."""
    return {name for name in rows if name.endswith(CONV1D)}


def without_copies(theirs: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    unused = (*BUFFERS, HEAD) if config.tied else BUFFERS
    return {name: tensor for name, tensor in theirs.items() if not name.endswith(unused)}


read_model_config, import_folder = importer("gpt2", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
