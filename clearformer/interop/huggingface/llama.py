"""Convert Llama, and models with the same architecture (SmolLM2, TinyLlama …), to our format and back.

Surprises: Llama's three matrices for queries, keys and values are stacked in one here; keys and values may have fewer
rows than queries. The gate and value matrices of the feed-forward layer are stacked in one too, gate first.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import HEAD, exporter, importer, with_head
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    require_fields,
    require_settings,
    resolved_fields,
)
from clearformer.interop.names import Rows, Table, block_rows, to_ours, to_theirs
from clearformer.models.gpt import GPTConfig
from clearformer.wording import listed

CONFIG = {
    "vocab_size": "vocab",
    "num_hidden_layers": "n_layers",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "max_position_embeddings": "max_length",
    "hidden_act": "activation",
    "rms_norm_eps": "norm_eps",
    "attention_dropout": "attention_dropout",
    "tie_word_embeddings": "tied",
}
DEFAULTS = {  # values that config.json may omit
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}
ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu-tanh"}
SWITCHES = {"attention_bias": False, "mlp_bias": False}
FIXED: dict[str, Any] = {  # the same in every Llama
    "residual": "pre",
    "first_norm": False,
    "final_norm": True,
    "norm": "rms",
    "bias": False,
    "head_bias": False,
    "scale_embedding": False,
    "prompt": "causal",
    "positions": {"kind": "rotary"},
}

BLOCK: Table = {
    "add_attn.norm.": "input_layernorm.",
    "attn.qkv.": ("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."),
    "attn.out.": "self_attn.o_proj.",
    "add_mlp.norm.": "post_attention_layernorm.",
    "mlp.up.": ("mlp.gate_proj.", "mlp.up_proj."),
    "mlp.down.": "mlp.down_proj.",
}


def import_config(theirs: Mapping[str, Any], where: str) -> GPTConfig:
    """Convert config.json to our configuration. A setting that we do not support raises an error."""
    require_settings(theirs, SWITCHES, where)
    theirs = {**DEFAULTS, **theirs}
    if theirs.get("num_key_value_heads") is None:
        theirs["num_key_value_heads"] = theirs.get("num_attention_heads")
    ours, width = our_settings(theirs, CONFIG, where), theirs.get("head_dim")
    return GPTConfig.parse(
        {
            **ours,
            "activation": import_activation(ours["activation"], ACTIVATIONS, where),
            "d_head": None if width is None or width * ours["n_heads"] == ours["d_model"] else width,
            "positions": {"kind": "rotary", "base": rope_base(theirs, where)},
            "norm": "rms",
            "bias": False,
            "dropout": 0.0,
        },
        where,
    )


def rope_base(theirs: Mapping[str, Any], where: str) -> float:
    """Return the base of the rotary angles; newer files have it in `rope_parameters`. Scaled angles raise an error."""
    rope = {**(theirs.get("rope_scaling") or {}), **(theirs.get("rope_parameters") or {})}
    base = rope.pop("rope_theta", None) or theirs.get("rope_theta") or 10000.0
    kind = rope.pop("rope_type", None) or rope.pop("type", None) or "default"
    if kind != "default" or rope:
        raise CheckpointError(
            f"{where}: unsupported rotary positions of type `{kind}`" + (f" with {listed(rope)}" if rope else ""),
            "only type `default`, without scaling, can be imported",
        )
    return float(base)


def export_config(
    config: GPTConfig, bos: int | None = None, eos: int | None = None, pad: int | None = None
) -> dict[str, Any]:
    """Return Llama's config.json, or raise an error if Llama does not support this configuration."""
    fields = resolved_fields(config)
    require_fields(fields, {**FIXED, "d_value": config.head_width, "attention_scale": config.head_width**-0.5}, "Llama")
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **{name: fields[field] for name, field in CONFIG.items()},
        "hidden_act": export_activation(config.activation, ACTIVATIONS, "Llama"),
        "head_dim": config.head_width,
        "rope_theta": config.positions.base,
        **SWITCHES,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
    }


def import_weights(theirs: Mapping[str, Tensor], config: GPTConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format. Rotary frequencies and copies of the tied embedding, if any, are dropped."""
    unused = (".rotary_emb.inv_freq", HEAD) if config.tied else (".rotary_emb.inv_freq",)
    with_prefix = with_head(theirs, "model.", "embed_tokens.weight")
    tensors = {name: tensor for name, tensor in with_prefix.items() if not name.endswith(unused)}
    return to_ours(tensors, tensor_rows(config), where)


def export_weights(ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    rows, queries = tensor_rows(config), config.n_heads * config.head_width
    keys = (config.n_kv_heads or config.n_heads) * config.head_width
    parts = {name: (queries, keys, keys) for name in rows if name.endswith("attn.qkv.weight")}
    return to_theirs(ours, rows, "the model", parts=parts)


def tensor_rows(config: GPTConfig) -> Rows:
    return {
        "embedding.weight": ("model.embed_tokens.weight",),
        **block_rows("decoder.blocks.", "model.layers.", config.n_layers, BLOCK, kinds=("weight",)),
        "decoder.norm.weight": ("model.norm.weight",),
        **({} if config.tied else {"unembedding.weight": (HEAD,)}),
    }


read_model_config, import_folder = importer("llama", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
