"""Convert Pegasus (Zhang et al. 2020) to our format and back: the Transformer that `train --pairs` chooses.

Pegasus is the Transformer of Vaswani et al. 2017 with pre-norm: a norm before each sublayer and one after each stack,
one embedding for source, target and head, and sinusoidal positions with all sines before all cosines. Its tensors have
the names of Marian's, and a model with interleaved sinusoids is exported with its features in another order.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearformer.interop.huggingface import marian
from clearformer.interop.huggingface.folder import exporter, importer
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    plain_heads,
    require_fields,
    require_settings,
    resolved_fields,
)
from clearformer.interop.names import Rows, rows_of, to_ours, to_theirs
from clearformer.models.transformer import TransformerConfig

CONFIG = {name: field for name, field in marian.CONFIG.items() if name != "decoder_vocab_size"}
SWITCHES = {"tie_word_embeddings": True}
FIXED: dict[str, Any] = {**marian.FIXED, "residual": "pre", "final_norm": True, "share": "all"}
FINAL_NORMS = rows_of({f"{stack}.norm.": f"model.{stack}.layer_norm." for stack in ("encoder", "decoder")})


def import_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """Convert config.json to our configuration. A setting that we do not support raises an error."""
    require_settings(theirs, SWITCHES, where)
    ours = our_settings({"attention_dropout": 0.0, "activation_dropout": 0.0, **theirs}, CONFIG, where)
    ours["activation"] = import_activation(ours["activation"], marian.ACTIVATIONS, where)
    return TransformerConfig.parse(
        {**ours, **FIXED, "target_vocab": ours["source_vocab"], "head_bias": True},
        where,
    )


def export_config(config: TransformerConfig, pad: int, eos: int, first: int) -> dict[str, Any]:
    """Return Pegasus's config.json. Unsupported settings raise an error. Translations start with token `first`."""
    fields = resolved_fields(config)
    fixed = {**FIXED, **marian.POSITIONS, **plain_heads(config)}
    require_fields(fields, {**fixed, "first_norm": False, "norm_eps": 1e-5, "scale_head": False}, "Pegasus")
    return {
        "model_type": "pegasus",
        "architectures": ["PegasusForConditionalGeneration"],
        "is_encoder_decoder": True,
        **{name: fields[field] for name, field in CONFIG.items()},
        "activation_function": export_activation(config.activation, marian.ACTIVATIONS, "Pegasus"),
        **SWITCHES,
        **marian.first_and_last(pad, eos, first),
    }


def import_weights(theirs: Mapping[str, Tensor], config: TransformerConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format. Copies of the embedding and tables of sinusoids, if present, are dropped."""
    tensors, bias = marian.without_constants(theirs, config)
    return {**to_ours(tensors, tensor_rows(config), where), "unembedding.bias": bias}


def export_weights(ours: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Convert our tensors to Pegasus's. A model without a head bias is exported with a zero bias."""
    tensors, bias = marian.in_halves(ours, config)
    return {**to_theirs(tensors, tensor_rows(config), "the model"), marian.HEAD_BIAS: bias}


def tensor_rows(config: TransformerConfig) -> Rows:
    return {**marian.tensor_rows(config), **FINAL_NORMS}


read_model_config, import_folder = importer("pegasus", import_config, import_weights)
export_folder = exporter(export_config, export_weights)
