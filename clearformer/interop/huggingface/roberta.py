"""RoBERTa (Liu et al. 2019), to ours and back: BERT's encoder under another name, with a head of another name.

What would surprise: a text's first position is number pad + 1 there, two in every published model, and the rows of the
table before it are never used. Here that is `positions.offset`, and a table of 514 rows means `max_length = 512`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.bert import (
    BUFFERS,
    FIXED,
    TABLE,
    encoder_rows,
    export_settings,
    found,
    import_settings,
    prefix_in,
)
from clearformer.interop.huggingface.folder import Shapes, exporter, importer
from clearformer.interop.names import Rows, rows_of, to_ours, to_theirs, without_copies
from clearformer.models.bert import BertConfig

PREFIX = "roberta."
WORD_HEAD: Rows = {
    **rows_of({"word_head.dense.": "lm_head.dense.", "word_head.norm.": "lm_head.layer_norm."}),
    "word_head.unembedding.bias": ("lm_head.bias",),
}
COPIES = {"lm_head.decoder.bias": "lm_head.bias"}
TIED = "lm_head.decoder.weight"
HEADS = {"word_head": "lm_head.", "pooler": "pooler.dense."}


def import_config(theirs: Mapping[str, Any], where: str) -> BertConfig:
    """What config.json says, of a model with all heads; what our configuration has no word for is refused."""
    ours = {**import_settings(theirs, where), "next_sentence_head": False}
    if not isinstance(pad := theirs.get("pad_token_id", 1), int):
        raise CheckpointError(f"{where}: `pad_token_id` is {pad}", "a number says where positions begin; usually 1")
    config = BertConfig.parse({**ours, **FIXED, "positions": {"kind": "learned", "offset": pad + 1}}, where)
    return config.parse({**config.model_dump(), "max_length": config.max_length - pad - 1}, where)


def complete(config: BertConfig, shapes: Shapes, folder: Path) -> BertConfig:
    """With the heads that have tensors."""
    config = config.changed(**found(HEADS, shapes))
    check_head(config, str(folder / "config.json"))
    return config


def export_config(config: BertConfig) -> dict[str, Any]:
    """config.json of the same model, where RoBERTa has one. It pads with the token before `positions.offset`."""
    offset = config.positions.offset
    fixed = {**FIXED, "positions": {"kind": "learned", "offset": max(offset, 1)}, "next_sentence_head": False}
    check_head(config, "RoBERTa")
    return {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM" if config.word_head else "RobertaModel"],
        **export_settings(config, fixed, "RoBERTa"),
        "max_position_embeddings": config.max_length + offset,
        "pad_token_id": offset - 1,
    }


def check_head(config: BertConfig, where: str) -> None:
    """RoBERTa's word head is always a GELU, whatever its blocks are; ours is what they are."""
    if config.word_head and config.activation != "gelu":
        hint = "a model with a word head must have GELU in its blocks too to be converted"
        raise CheckpointError(f"{where}: a word head beside blocks of {config.activation}", hint)


def import_weights(theirs: Mapping[str, Tensor], config: BertConfig, where: str) -> dict[str, Tensor]:
    """Under our names. Copies of what is tied are left out."""
    prefix = prefix_in(theirs, PREFIX)
    kept = {name: tensor for name, tensor in theirs.items() if not name.endswith(BUFFERS)}
    kept = without_copies(kept, {**COPIES, TIED: f"{prefix}{TABLE}"}, where)
    return to_ours(kept, tensor_rows(config, prefix), where)


def export_weights(ours: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: BertConfig, prefix: str | None = None) -> Rows:
    """Every tensor. `prefix` comes before all names but the head's; if not given, as `save_pretrained` has it."""
    if prefix is None:
        prefix = PREFIX if config.word_head else ""
    return {**encoder_rows(config, prefix), **(WORD_HEAD if config.word_head else {})}


read_model_config, import_folder = importer("roberta", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
