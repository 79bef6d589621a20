"""Import GGUF, the single-file format of llama.cpp, for the llama architecture (Llama, SmolLM2 …).

The `gguf` package dequantises matrices to float32. Two surprises. In the file, a rotary pair consists of the
neighbouring features 2i and 2i + 1 of a head. Here it consists of i and i + K/2, so the rows of the query and key
matrices are reordered. A file without `output.weight` has a tied head.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.errors import CheckpointError, MachineError
from clearformer.interop.gguf_text import import_tokenizer
from clearformer.interop.names import HINT, Rows, Table, block_rows, to_ours
from clearformer.interop.untrusted import untrusted
from clearformer.models.gpt import GPTConfig
from clearformer.models.sizes import check_sizes
from clearformer.text import Tokenizer
from clearformer.wording import count

CONFIG = {
    "llama.block_count": "n_layers",
    "llama.embedding_length": "d_model",
    "llama.feed_forward_length": "d_ff",
    "llama.attention.head_count": "n_heads",
    "llama.context_length": "max_length",
    "llama.attention.layer_norm_rms_epsilon": "norm_eps",
}
BLOCK: Table = {
    "add_attn.norm.": "attn_norm.",
    "attn.qkv.": ("attn_q.", "attn_k.", "attn_v."),
    "attn.out.": "attn_output.",
    "add_mlp.norm.": "ffn_norm.",
    "mlp.up.": ("ffn_gate.", "ffn_up."),
    "mlp.down.": "ffn_down.",
}
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
MAX_VALUES = 4_000_000  # of metadata; a vocabulary of 300,000 tokens has 1.2 million
SPLIT_HINT = "if the model is split into several files, merge them first: llama-gguf-split --merge FIRST OUT.gguf"


def import_file(path: Path) -> tuple[GPTConfig, dict[str, Tensor], Tokenizer, str | None]:
    """Read a .gguf file. Returns its configuration, float32 weights, tokenizer, and chat template or None."""
    facts, tensors = read_file(path)
    with untrusted(path):
        config = import_config(facts, tensors, str(path))
        check_sizes(config)
        weights = import_weights(tensors, config, str(path))
        template = facts.get("tokenizer.chat_template")
        return config, weights, import_tokenizer(facts, str(path)), template if isinstance(template, str) else None


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata and the tensors of a GGUF file, under the names used in the file."""
    try:
        import gguf
    except ImportError:
        raise MachineError("the package gguf, which reads .gguf files, is not installed", "pip install gguf") from None
    try:
        if not path.is_file():
            raise OSError("it is not a regular file")
        file = bounded(gguf.GGUFReader)(path)
        facts = {name: field.contents() for name, field in file.fields.items()}
        tensors = {
            tensor.name: torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
            for tensor in file.tensors
        }
    except Exception as error:  # what a damaged file makes the reader raise is of any type
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise CheckpointError(f"{path} cannot be read as GGUF: {reason}", "download the file again") from None
    return facts, tensors


def too_many_values() -> str:
    return f"it has more than {count(MAX_VALUES, 'value')}"


def bounded(reader: Any) -> Any:
    """Return a reader that stops at the end of the file: gguf's goes on with empty values, as many as are declared."""

    class Bounded(reader):
        n_values = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, *more: Any, **named: Any) -> Any:
            self.n_values += 1
            if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("a value lies beyond the end of the file")
            if self.n_values > MAX_VALUES:  # each is a Python object
                raise ValueError(too_many_values())
            return super()._get(offset, dtype, count, *more, **named)

    return Bounded


def import_config(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> GPTConfig:
    """Build our configuration from the metadata. The tensors show the vocabulary size and whether the head is tied."""
    if facts.get("general.architecture") != "llama":
        raise CheckpointError(
            f"{where}: unsupported architecture `{facts.get('general.architecture')}`",
            "only GGUF files of the llama architecture can be imported",
        )
    for name in CONFIG:
        if name not in facts:
            raise CheckpointError(f"{where} lacks `{name}`", SPLIT_HINT)
    if EMBEDDING not in tensors:
        raise CheckpointError(f"{where} lacks `{EMBEDDING}`", SPLIT_HINT)
    ours = {field: facts[name] for name, field in CONFIG.items()}
    width = facts.get("llama.attention.key_length")
    config = GPTConfig.parse(
        {
            **ours,
            "vocab": tensors[EMBEDDING].size(0),
            "n_kv_heads": facts.get("llama.attention.head_count_kv", ours["n_heads"]),
            "d_head": None if width is None or width * ours["n_heads"] == ours["d_model"] else width,
            "positions": {"kind": "rotary", "base": facts.get("llama.rope.freq_base", 10000.0)},
            "tied": HEAD not in tensors,
            "activation": "swiglu",
            "norm": "rms",
            "bias": False,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        where,
    )
    scaling = facts.get("llama.rope.scaling.type", "none")
    n_rotated = facts.get("llama.rope.dimension_count", config.head_width)
    if scaling != "none" or n_rotated != config.head_width:
        raise CheckpointError(
            f"{where}: rotary positions cover {n_rotated} of {config.head_width} features, with scaling `{scaling}`",
            "only rotary positions on all features of a head, without scaling, can be imported",
        )
    return config


def import_weights(theirs: Mapping[str, Tensor], config: GPTConfig, where: str) -> dict[str, Tensor]:
    """Convert the tensors to our format, with the two features of a rotary pair half a head apart."""
    n_heads = {"attn_q.weight": config.n_heads, "attn_k.weight": config.n_kv_heads or config.n_heads}
    tensors = dict(theirs)
    for name, tensor in theirs.items():
        n = n_heads.get(name.removeprefix("blk.").partition(".")[2])
        if n is not None:
            if tensor.size(0) != n * config.head_width:
                rows = f"{count(tensor.size(0), 'row')}, not {n * config.head_width}"
                raise CheckpointError(f"{where}: `{name}` has {rows}", HINT)
            tensors[name] = halves(tensor, n)
    return to_ours(tensors, tensor_rows(config), where)


def halves(weight: Tensor, n_heads: int) -> Tensor:
    """Reorder the rows (n·K, D) of n heads, so that the two rows of a rotary pair are K/2 apart instead of adjacent."""
    return weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)  # (n, K/2, 2, D) -> (n, 2, K/2, D)


def tensor_rows(config: GPTConfig) -> Rows:
    return {
        "embedding.weight": (EMBEDDING,),
        **block_rows("decoder.blocks.", "blk.", config.n_layers, BLOCK, kinds=("weight",)),
        "decoder.norm.weight": ("output_norm.weight",),
        **({} if config.tied else {"unembedding.weight": (HEAD,)}),
    }
