"""Convert RoBERTa (Liu et al. 2019) to our format and back. Its encoder is BERT's; its head has other names.

Surprise: positions are numbered from pad_token_id + 1, which is 2 in every published model, so the first rows of the
position table are never used. Here this is `positions.offset`: a table of 514 rows means `max_length = 512`.
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
    import_settings,
    prefix_in,
    present_parts,
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
    """Convert config.json to our configuration, with all heads. A setting that we do not support raises an error."""
    ours = {**import_settings(theirs, where), "next_sentence_head": False}
    if not isinstance(pad := theirs.get("pad_token_id", 1), int):
        raise CheckpointError(
            f"{where}: `pad_token_id` is {pad}, not an integer",
            "set it to the id of the padding token, usually 1; positions start at pad_token_id + 1",
        )
    config = BertConfig.parse({**ours, **FIXED, "positions": {"kind": "learned", "offset": pad + 1}}, where)
    return config.parse({**config.model_dump(), "max_length": config.max_length - pad - 1}, where)


def complete(config: BertConfig, shapes: Shapes, folder: Path) -> BertConfig:
    """Remove from the configuration all heads without tensors in the weight files."""
    config = config.changed(**present_parts(HEADS, shapes))
    check_head(config, str(folder / "config.json"))
    return config


def export_config(config: BertConfig) -> dict[str, Any]:
    """Return RoBERTa's config.json. Unsupported settings raise an error. The padding id is `positions.offset` − 1."""
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
    """Check that a model with a word head uses GELU, as RoBERTa's head does; our head uses the blocks' activation."""
    if config.word_head and config.activation != "gelu":
        hint = "a model with a word head can be converted only if its activation is gelu"
        raise CheckpointError(f"{where}: the model has a word head, but its activation is {config.activation}", hint)


def import_weights(theirs: Mapping[str, Tensor], config: BertConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format, and drop copies of tied tensors."""
    prefix = prefix_in(theirs, PREFIX)
    tensors = {name: tensor for name, tensor in theirs.items() if not name.endswith(BUFFERS)}
    tensors = without_copies(tensors, {**COPIES, TIED: f"{prefix}{TABLE}"}, where)
    return to_ours(tensors, tensor_rows(config, prefix), where)


def export_weights(ours: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: BertConfig, prefix: str | None = None) -> Rows:
    """Return the table rows for all tensors. Names outside the head start with `prefix`, by default Hugging Face's."""
    if prefix is None:
        prefix = PREFIX if config.word_head else ""
    return {**encoder_rows(config, prefix), **(WORD_HEAD if config.word_head else {})}


read_model_config, import_folder = importer("roberta", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
