"""GPT-2 to ours and back.

What would surprise: its layers are `Conv1D`s, whose matrices lie the other way round, (in, out); queries, keys and
values are packed into one as ours are. Older files also hold each layer's causal mask, as `attn.bias`. Its layers
always have biases: a model of ours without them goes over with zeros.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearformer.interop.huggingface.folder import HEAD, exporter, importer, with_head
from clearformer.interop.huggingface.settings import (
    fit,
    insist,
    our_settings,
    our_word,
    plain_heads,
    their_word,
    written_out,
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
DEFAULTS = {  # of what config.json may leave out
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
FIXED: dict[str, Any] = {  # what every GPT-2 is
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
    """What config.json says; what our configuration has no word for is refused."""
    insist(theirs, SWITCHES, where)
    theirs = {**DEFAULTS, **theirs}
    if theirs.get("n_inner") is None and theirs.get("n_embd") is not None:
        theirs["n_inner"] = 4 * theirs["n_embd"]
    ours = our_settings(theirs, CONFIG, where)
    return GPTConfig.parse({**ours, "activation": our_word(ours["activation"], ACTIVATIONS, where)}, where)


def export_config(
    config: GPTConfig, bos: int | None = None, eos: int | None = None, pad: int | None = None
) -> dict[str, Any]:
    """config.json of the same model, where GPT-2 has one."""
    fields = written_out(config)
    fit(fields, {**FIXED, **plain_heads(config)}, "GPT-2")
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **{name: fields[own] for name, own in CONFIG.items()},
        "n_inner": None if config.d_ff == 4 * config.d_model else config.d_ff,
        "activation_function": their_word(config.activation, ACTIVATIONS, "GPT-2"),
        **SWITCHES,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
    }


def import_weights(theirs: Mapping[str, Tensor], config: GPTConfig, where: str) -> dict[str, Tensor]:
    """Under our names. A copy of the tied table and the masks, which some files hold, are left out."""
    rows, named = tensor_rows(config), with_head(theirs, "transformer.", "wte.weight")
    return to_ours(without_copies(named, config), rows, where, conv1d(rows))


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
    """Those of our tensors that lie the other way round on their side."""
    return {name for name in rows if name.endswith(CONV1D)}


def without_copies(theirs: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    surplus = (*BUFFERS, HEAD) if config.tied else BUFFERS
    return {name: tensor for name, tensor in theirs.items() if not name.endswith(surplus)}


read_model_config, import_folder = importer("gpt2", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
