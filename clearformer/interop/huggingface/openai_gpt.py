"""Convert the original GPT to our format and back. Its blocks are GPT-2's, but post-norm; it has no final norm.

Surprises: "gelu" in its configuration is the tanh approximation, and d_ff is always 4 · d_model.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearformer.interop.huggingface.folder import HEAD, exporter, importer, with_head
from clearformer.interop.huggingface.gpt2 import BLOCK, conv1d, without_copies
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    plain_heads,
    require_fields,
    resolved_fields,
)
from clearformer.interop.names import Rows, block_rows, to_ours, to_theirs
from clearformer.models.gpt import GPTConfig

CONFIG = {
    "vocab_size": "vocab",
    "n_layer": "n_layers",
    "n_embd": "d_model",
    "n_head": "n_heads",
    "n_positions": "max_length",
    "afn": "activation",
    "layer_norm_epsilon": "norm_eps",
    "resid_pdrop": "dropout",
    "embd_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tied",
}
DEFAULTS = {  # values that config.json may omit
    "afn": "gelu",
    "layer_norm_epsilon": 1e-5,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
}
ACTIVATIONS = {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
FIXED: dict[str, Any] = {  # the same in every GPT
    "residual": "post",
    "first_norm": False,
    "final_norm": False,
    "norm": "layer",
    "bias": True,
    "head_bias": False,
    "scale_embedding": False,
    "prompt": "causal",
    "positions": {"kind": "learned", "offset": 0},
}


def import_config(theirs: Mapping[str, Any], where: str) -> GPTConfig:
    """Convert config.json to our configuration. A setting that we do not support raises an error."""
    ours = our_settings({**DEFAULTS, **theirs}, CONFIG, where)
    implied = {"d_ff": 4 * ours["d_model"], "residual": "post"}
    return GPTConfig.parse(
        {**ours, **implied, "activation": import_activation(ours["activation"], ACTIVATIONS, where)}, where
    )


def export_config(
    config: GPTConfig, bos: int | None = None, eos: int | None = None, pad: int | None = None
) -> dict[str, Any]:
    """Return GPT's config.json, or raise an error if GPT does not support this configuration."""
    fields = resolved_fields(config)
    require_fields(fields, {**FIXED, **plain_heads(config), "d_ff": 4 * config.d_model}, "GPT")
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        **{name: fields[field] for name, field in CONFIG.items()},
        "afn": export_activation(config.activation, ACTIVATIONS, "GPT"),
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
    }


def import_weights(theirs: Mapping[str, Tensor], config: GPTConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format. Causal masks and copies of the tied embedding, if present, are dropped."""
    rows, tensors = tensor_rows(config), with_head(theirs, "transformer.", "tokens_embed.weight")
    return to_ours(without_copies(tensors, config), rows, where, conv1d(rows))


def export_weights(ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    rows = tensor_rows(config)
    return to_theirs(ours, rows, "the model", conv1d(rows))


def tensor_rows(config: GPTConfig) -> Rows:
    return {
        "embedding.weight": ("transformer.tokens_embed.weight",),
        "decoder.positions.table.weight": ("transformer.positions_embed.weight",),
        **block_rows("decoder.blocks.", "transformer.h.", config.n_layers, BLOCK),
        **({} if config.tied else {"unembedding.weight": (HEAD,)}),
    }


read_model_config, import_folder = importer("openai-gpt", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
