"""BERT and the sentence encoders made of it (MiniLM and their kin), to ours and back.

Files differ in what they hold. A BertModel has no `bert.` before its names and no heads; a BertForMaskedLM has no
pooler; config.json need not say so (bert-base-uncased's does not). So the tensors decide which heads ours has. Files
from TensorFlow's days call a norm's weight gamma and its bias beta, and some repeat the tied table, or hold the numbers
0, 1, 2 ... of the positions.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import Shapes, exporter, importer
from clearformer.interop.huggingface.settings import (
    fit,
    insist,
    our_settings,
    our_word,
    plain_heads,
    their_word,
    written_out,
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
FIXED: dict[str, Any] = {  # what every BERT is
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
TABLE, TIED = "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"  # one tensor
COPIES = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
BUFFERS = (".position_ids", ".token_type_ids")
HEADS = {"word_head": "cls.predictions.", "pooler": "pooler.dense.", "next_sentence_head": "cls.seq_relationship."}
CLASSES = {  # by word head and next sentence
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
    (False, False): "BertModel",
}


def import_config(theirs: Mapping[str, Any], where: str) -> BertConfig:
    """What config.json says, of a model with all heads; what our configuration has no word for is refused."""
    return BertConfig.parse({**import_settings(theirs, where), **FIXED}, where)


def import_settings(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    insist(theirs, SWITCHES, where)
    ours = our_settings({"layer_norm_eps": 1e-12, **theirs}, CONFIG, where)
    return {**ours, "activation": our_word(ours["activation"], ACTIVATIONS, where)}


def complete(config: BertConfig, shapes: Shapes, folder: Path) -> BertConfig:
    """With the heads that have tensors."""
    return config.changed(**found(HEADS, shapes))


def found(parts: Mapping[str, str], tensors: Collection[str]) -> dict[str, bool]:
    """Which of these parts of a model have tensors."""
    return {own: any(part in name for name in tensors) for own, part in parts.items()}


def export_config(config: BertConfig, pad: int) -> dict[str, Any]:
    """config.json of the same model, where BERT has one, of the class that has the model's heads."""
    return {
        "model_type": "bert",
        "architectures": [CLASSES[config.word_head, config.next_sentence_head]],
        **export_settings(config, FIXED, "BERT"),
        "pad_token_id": pad,
    }


def export_settings(config: BertConfig, fixed: Mapping[str, Any], family: str) -> dict[str, Any]:
    fit(fields := written_out(config), {**fixed, **plain_heads(config)}, family)
    if not config.n_segments:
        raise CheckpointError(f"{family} knows no model with n_segments = 0", "it must be at least 1")
    return {
        **{name: fields[own] for name, own in CONFIG.items()},
        "hidden_act": their_word(config.activation, ACTIVATIONS, family),
        "tie_word_embeddings": True,
    }


def import_weights(theirs: Mapping[str, Tensor], config: BertConfig, where: str) -> dict[str, Tensor]:
    """Under our names. Old names are read as new ones, and copies of what is tied are left out."""
    kept = {modern(name): tensor for name, tensor in theirs.items() if not name.endswith(BUFFERS)}
    prefix = prefix_in(kept, PREFIX)
    kept = without_copies(kept, {**COPIES, TIED: f"{prefix}{TABLE}"}, where)
    return to_ours(kept, tensor_rows(config, prefix), where)


def modern(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def prefix_in(tensors: Collection[str], prefix: str) -> str:
    """The prefix, if these tensors have it; a bare model's do not."""
    return prefix if any(name.startswith(prefix) for name in tensors) else ""


def export_weights(ours: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: BertConfig, prefix: str | None = None) -> Rows:
    """Every tensor. `prefix` comes before all names but the heads'; if not given, as `save_pretrained` has it."""
    has_heads = config.word_head or config.next_sentence_head
    return {
        **encoder_rows(config, (PREFIX if has_heads else "") if prefix is None else prefix),
        **(WORD_HEAD if config.word_head else {}),
        **(NEXT_SENTENCE if config.next_sentence_head else {}),
    }


def encoder_rows(config: BertConfig, prefix: str) -> Rows:
    """All but the heads: embeddings, blocks and, if there is one, the pooler."""
    theirs = {
        **{own: name for own, name in EMBEDDINGS.items() if config.n_segments or own != "segments.weight"},
        **block_rows("encoder.blocks.", "encoder.layer.", config.n_layers, BLOCK),
        **(POOLER if config.pooler else {}),
    }
    return inside("", prefix, theirs)


read_model_config, import_folder = importer("bert", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
