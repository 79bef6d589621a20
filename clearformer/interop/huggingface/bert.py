"""Convert BERT, and sentence encoders based on it such as MiniLM, to our format and back.

Files vary. A BertModel has no heads, and its tensor names lack the prefix `bert.`; a BertForMaskedLM has no pooler.
config.json does not always show this (in bert-base-uncased it does not), so the tensors decide which heads our model
has. Files converted from TensorFlow call the weight of a norm gamma and its bias beta. Some files contain a copy of the
tied embedding, or the position ids 0, 1, 2 ….
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import Shapes, exporter, importer
from clearformer.interop.huggingface.settings import (
    export_activation,
    import_activation,
    our_settings,
    plain_heads,
    require_fields,
    require_settings,
    resolved_fields,
)
from clearformer.interop.names import Rows, Table, block_rows, inside, rows_of, to_ours, to_theirs, without_copies
from clearformer.models.bert import BertConfig

CONFIG = {
    "vocab_size": "vocab",
    "num_hidden_layers": "n_layers",
    "type_vocab_size": "n_segments",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_attention_heads": "n_heads",
    "hidden_act": "activation",
    "layer_norm_eps": "norm_eps",
    "max_position_embeddings": "max_length",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
FIXED: dict[str, Any] = {  # the same in every BERT
    "residual": "post",
    "first_norm": True,
    "final_norm": False,
    "norm": "layer",
    "bias": True,
    "activation_dropout": 0.0,
    "positions": {"kind": "learned", "offset": 0},
}
SWITCHES = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}

PREFIX = "bert."
EMBEDDINGS: Rows = {
    "embedding.weight": ("embeddings.word_embeddings.weight",),
    "segments.weight": ("embeddings.token_type_embeddings.weight",),
    "encoder.positions.table.weight": ("embeddings.position_embeddings.weight",),
    **rows_of({"encoder.first_norm.": "embeddings.LayerNorm."}),
}
BLOCK: Table = {
    "attn.qkv.": ("attention.self.query.", "attention.self.key.", "attention.self.value."),
    "attn.out.": "attention.output.dense.",
    "add_attn.norm.": "attention.output.LayerNorm.",
    "mlp.up.": "intermediate.dense.",
    "mlp.down.": "output.dense.",
    "add_mlp.norm.": "output.LayerNorm.",
}
POOLER = rows_of({"pooler.": "pooler.dense."})
WORD_HEAD: Rows = {
    **rows_of({"word_head.dense.": "cls.predictions.transform.dense."}),
    **rows_of({"word_head.norm.": "cls.predictions.transform.LayerNorm."}),
    "word_head.unembedding.bias": ("cls.predictions.bias",),
}
NEXT_SENTENCE = rows_of({"next_sentence_head.": "cls.seq_relationship."})
TABLE, TIED = "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"  # tied
COPIES = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
BUFFERS = (".position_ids", ".token_type_ids")
HEADS = {"word_head": "cls.predictions.", "pooler": "pooler.dense.", "next_sentence_head": "cls.seq_relationship."}
CLASSES = {  # by (word_head, next_sentence_head)
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
    (False, False): "BertModel",
}


def import_config(theirs: Mapping[str, Any], where: str) -> BertConfig:
    """Convert config.json to our configuration, with all heads. A setting that we do not support raises an error."""
    return BertConfig.parse({**import_settings(theirs, where), **FIXED}, where)


def import_settings(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    require_settings(theirs, SWITCHES, where)
    ours = our_settings({"layer_norm_eps": 1e-12, **theirs}, CONFIG, where)
    return {**ours, "activation": import_activation(ours["activation"], ACTIVATIONS, where)}


def complete(config: BertConfig, shapes: Shapes, folder: Path) -> BertConfig:
    """Remove from the configuration all heads without tensors in the weight files."""
    return config.changed(**present_parts(HEADS, shapes))


def present_parts(parts: Mapping[str, str], tensors: Collection[str]) -> dict[str, bool]:
    """Return, for each field, whether any tensor name contains its substring: {field: substring} -> {field: bool}."""
    return {field: any(part in name for name in tensors) for field, part in parts.items()}


def export_config(config: BertConfig, pad: int) -> dict[str, Any]:
    """Return BERT's config.json, or raise an error if BERT does not support this configuration."""
    return {
        "model_type": "bert",
        "architectures": [CLASSES[config.word_head, config.next_sentence_head]],
        **export_settings(config, FIXED, "BERT"),
        "pad_token_id": pad,
    }


def export_settings(config: BertConfig, fixed: Mapping[str, Any], family: str) -> dict[str, Any]:
    require_fields(fields := resolved_fields(config), {**fixed, **plain_heads(config)}, family)
    if not config.n_segments:
        raise CheckpointError(
            f"{family} does not support n_segments = 0", "only models with n_segments of at least 1 can be exported"
        )
    return {
        **{name: fields[field] for name, field in CONFIG.items()},
        "hidden_act": export_activation(config.activation, ACTIVATIONS, family),
        "tie_word_embeddings": True,
    }


def import_weights(theirs: Mapping[str, Tensor], config: BertConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format. Old names are recognised, and copies of tied tensors are dropped."""
    tensors = {modern_name(name): tensor for name, tensor in theirs.items() if not name.endswith(BUFFERS)}
    prefix = prefix_in(tensors, PREFIX)
    tensors = without_copies(tensors, {**COPIES, TIED: f"{prefix}{TABLE}"}, where)
    return to_ours(tensors, tensor_rows(config, prefix), where)


def modern_name(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def prefix_in(tensors: Collection[str], prefix: str) -> str:
    """Return `prefix` if any tensor name starts with it, else an empty string: models saved without a head lack it."""
    return prefix if any(name.startswith(prefix) for name in tensors) else ""


def export_weights(ours: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: BertConfig, prefix: str | None = None) -> Rows:
    """Return the name table of all tensors. Names outside the heads start with `prefix`, Hugging Face's if None."""
    heads = head_rows(config)
    return {**encoder_rows(config, (PREFIX if heads else "") if prefix is None else prefix), **heads}


def head_rows(config: BertConfig) -> Rows:
    return {
        **(WORD_HEAD if config.word_head else {}),
        **(NEXT_SENTENCE if config.next_sentence_head else {}),
    }


def encoder_rows(config: BertConfig, prefix: str) -> Rows:
    """Return the name table of all tensors outside the heads: embeddings, blocks and the pooler if there is one."""
    theirs = {
        **{ours: name for ours, name in EMBEDDINGS.items() if config.n_segments or ours != "segments.weight"},
        **block_rows("encoder.blocks.", "encoder.layer.", config.n_layers, BLOCK),
        **(POOLER if config.pooler else {}),
    }
    return inside("", prefix, theirs)


read_model_config, import_folder = importer("bert", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
