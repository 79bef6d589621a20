"""Convert MegatronBERT (Shoeybi et al. 2019) to our format and back: BERT with pre-norm.

A norm comes before each sublayer and after the last block, and none after the embeddings. `train --labels` chooses such
an encoder. All other tensors have the names of BERT's.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearformer.interop.huggingface.bert import (
    BUFFERS,
    CLASSES,
    COPIES,
    EMBEDDINGS,
    PREFIX,
    TABLE,
    TIED,
    complete,
    export_settings,
    head_rows,
    import_settings,
    prefix_in,
)
from clearformer.interop.huggingface.bert import FIXED as POST_NORM
from clearformer.interop.huggingface.folder import exporter, importer
from clearformer.interop.names import Rows, Table, block_rows, inside, rows_of, to_ours, to_theirs, without_copies
from clearformer.models.bert import BertConfig

FIXED: dict[str, Any] = {**POST_NORM, "residual": "pre", "first_norm": False, "final_norm": True}
BLOCK: Table = {
    "add_attn.norm.": "attention.ln.",
    "attn.qkv.": ("attention.self.query.", "attention.self.key.", "attention.self.value."),
    "attn.out.": "attention.output.dense.",
    "add_mlp.norm.": "ln.",
    "mlp.up.": "intermediate.dense.",
    "mlp.down.": "output.dense.",
}


def import_config(theirs: Mapping[str, Any], where: str) -> BertConfig:
    """Convert config.json to our configuration, with all heads. A setting that we do not support raises an error."""
    return BertConfig.parse({**import_settings(theirs, where), **FIXED}, where)


def export_config(config: BertConfig, pad: int) -> dict[str, Any]:
    """Return MegatronBERT's config.json, or raise an error if it does not support this configuration."""
    return {
        "model_type": "megatron-bert",
        "architectures": [f"Megatron{CLASSES[config.word_head, config.next_sentence_head]}"],
        **export_settings(config, FIXED, "MegatronBERT"),
        "pad_token_id": pad,
    }


def import_weights(theirs: Mapping[str, Tensor], config: BertConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format, and drop copies of tied tensors."""
    tensors = {name: tensor for name, tensor in theirs.items() if not name.endswith(BUFFERS)}
    prefix = prefix_in(tensors, PREFIX)
    tensors = without_copies(tensors, {**COPIES, TIED: f"{prefix}{TABLE}"}, where)
    return to_ours(tensors, tensor_rows(config, prefix), where)


def export_weights(ours: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: BertConfig, prefix: str | None = None) -> Rows:
    """Return the name table of all tensors. Names outside the heads start with `prefix`, Hugging Face's if None."""
    heads = head_rows(config)
    return {**encoder_rows(config, (PREFIX if heads else "") if prefix is None else prefix), **heads}


def encoder_rows(config: BertConfig, prefix: str) -> Rows:
    """Return the name table of all tensors outside the heads: embeddings, blocks and the pooler if there is one."""
    theirs = {
        **{ours: name for ours, name in EMBEDDINGS.items() if "first_norm" not in ours},
        **block_rows("encoder.blocks.", "encoder.layer.", config.n_layers, BLOCK),
        **rows_of({"encoder.norm.": "encoder.ln.", **({"pooler.": "pooler.dense."} if config.pooler else {})}),
    }
    return inside("", prefix, theirs)


read_model_config, import_folder = importer("megatron-bert", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
