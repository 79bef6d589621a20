"""Decoding by CTranslate2: a Transformer is converted once, into the cache of engines, and decoded by its C++ loop.

    q, k, v fused          self_attention.linear_0 (qkv), linear_1 (out)       attention.linear_0 (q), linear_1 (kv), …
    positions              our table, sinusoidal or learned
    vocabulary             token 17 is called "17", so that no tokenizer takes part

Greedy search gives the same tokens as the plain decoder. Beam search ends by a rule of CTranslate2: as soon as it has
as many finished hypotheses as the beam is wide. The package ctranslate2 must be installed.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.checkpoint import fingerprint
from clearformer.errors import CheckpointError, ConfigError, MachineError
from clearformer.generation import engine_cache
from clearformer.generation.beam import penalty
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.backends import FusedCore
from clearformer.layers.embeddings import Unembedding
from clearformer.layers.int8 import Int8Linear
from clearformer.layers.linear import Linear, PackedLinear
from clearformer.layers.positions import Learned, Sinusoidal
from clearformer.models.stack import StackConfig
from clearformer.models.transformer import Transformer, TransformerConfig

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
GATED = {"swiglu": "SWISH", "geglu": "GELU", "geglu-tanh": "GELUTanh"}
INSTEAD = "choose --engine torch"


def library() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise MachineError("CTranslate2 is not installed", "pip install 'clearformer[ctranslate2]'") from None
    return ctranslate2


class CTranslate2Decoder:
    """Decodes with CTranslate2 instead of the model; `decode` has the signature of `Decoder.decode`."""

    def __init__(self, model: nn.Module, announce: Callable[[str], None] = lambda text: None) -> None:
        library()
        if reason := unsupported(model):
            raise CheckpointError(f"CTranslate2 does not support this model: {reason}", INSTEAD)
        self.model, self.announce = model, announce
        self.translators: dict[tuple[int, int], Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return CTranslate2Decoder, (self.model, self.announce)

    def decode(
        self,
        source: Tensor,
        mask: Tensor | None,
        first: Tensor,
        eos: int,
        limits: Tensor,
        config: DecodeConfig,
        width: int,
        rngs: Sequence[Random] = (),
        prompts: Sequence[Sequence[int]] = (),
        is_watched: bool = False,
    ) -> Generator[tuple[Tensor, Tensor], Tensor | None, list[list[Hypothesis]]]:
        refuse_settings(config, is_watched)
        (start,) = set(first.tolist())
        translator = self.translator(start, eos)
        mask = torch.ones_like(source, dtype=torch.bool) if mask is None else mask
        texts = [[str(token) for token in row[seen].tolist()] for row, seen in zip(source, mask)]
        results: list[list[Hypothesis]] = [[] for _ in texts]
        for limit in set(limits.tolist()):  # CTranslate2 has one limit per batch
            rows = [row for row, value in enumerate(limits.tolist()) if value == limit]
            outputs = translator.translate_batch(
                [texts[row] for row in rows],
                beam_size=width,
                num_hypotheses=width,
                length_penalty=config.length_penalty,
                min_decoding_length=0,
                max_decoding_length=limit,
                max_input_length=0,
                return_scores=True,
            )
            for row, output in zip(rows, outputs):
                results[row] = hypotheses(output, limit, config)
        return results
        yield  # a generator like `Decoder.decode`, which no caller watches

    def translator(self, start: int, eos: int) -> Any:
        """Return the translator of CTranslate2 whose outputs start and end with the given tokens."""
        if (start, eos) not in self.translators:
            engine = library()
            facts = {
                "engine": "ctranslate2",
                "model": self.model.config.model_dump(mode="json"),  # type: ignore[union-attr, operator]
                "weights": fingerprint(self.model),
                "start": start,
                "eos": eos,
                "ctranslate2": engine.__version__,
            }
            folder = engine_cache.find(engine_cache.key_of(facts), self.announce)
            if folder is None:
                self.announce("converting the model for CTranslate2")
                folder = engine_cache.store(facts, lambda draft: convert(self.model, start, eos, draft))
            is_int8 = any(isinstance(module, Int8Linear) for module in self.model.modules())
            self.translators[start, eos] = engine.Translator(
                str(folder),
                compute_type="int8" if is_int8 else "float32",
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )
        return self.translators[start, eos]


def hypotheses(output: Any, limit: int, config: DecodeConfig) -> list[Hypothesis]:
    """Convert the hypotheses of CTranslate2. Its scores are log p / |y|^α, where |y| counts EOS."""
    lengths = [min(len(tokens) + 1, limit) for tokens in output.hypotheses]
    norms = [float(penalty(length, config)) for length in lengths]
    return [
        Hypothesis([int(token) for token in tokens], score, score * norm)
        for tokens, score, norm in zip(output.hypotheses, output.scores, norms)
    ]


def refuse_settings(config: DecodeConfig, is_watched: bool) -> None:
    """Refuse settings of the search that CTranslate2 does not have, or computes differently."""
    settings = {
        "sampling, whose draws would differ": config.temperature > 0,
        f"penalty = {config.penalty}": config.penalty != "power",
        f"stop = {config.stop}": config.stop != "heuristic",
        f"min_length = {config.min_length}, which would change its scores": config.min_length > 0,
        f"repetition_penalty = {config.repetition_penalty:g}": config.repetition_penalty != 1.0,
        "stop strings and streaming": is_watched,
    }
    if refused := [name for name, is_set in settings.items() if is_set]:
        raise ConfigError(f"the engine ctranslate2 does not support {refused[0]}", INSTEAD)


def unsupported(model: nn.Module) -> str | None:
    """Return why a model cannot be converted, or None."""
    if type(model) is not Transformer:
        return f"it is a {type(model).__name__}, not a Transformer with an encoder and a decoder"
    config: TransformerConfig = model.config
    if config.positions.kind not in ("sinusoidal", "learned"):
        return f"its positions are {config.positions.kind}, not sinusoidal or learned"
    for name in ("n_kv_heads", "d_head", "attention_scale"):
        if getattr(config, name) is not None:
            return f"it sets {name}"
    if config.scale_head:
        return "it sets scale_head"
    return without_parts(config) or changed(model)


def without_parts(config: StackConfig) -> str | None:
    """Return which part of a block is missing or different, so that a model cannot be converted; or None."""
    if config.norm not in ("layer", "rms"):
        return f"its norm is {config.norm}, not layer or rms"
    if config.residual == "none":
        return "it has no residual connections"
    return None if config.d_value is None else "it sets d_value"


def changed(model: nn.Module) -> str | None:
    """Return why a model of a supported form cannot be converted: its precision, adapters or a prefix; or None."""
    if next(model.parameters()).device.type != "cpu" or next(model.parameters()).dtype != torch.float32:
        return "it is not in float32 on the CPU"
    known = (nn.Linear, Linear, PackedLinear, Int8Linear, Unembedding)
    if any(isinstance(layer, nn.Linear) and type(layer) not in known for layer in model.modules()):
        return "it has adapters"
    layers = [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention)]
    if any(type(layer.core) is not FusedCore for layer in layers):
        return "it was trained by prefix tuning"
    return None


def convert(
    model: Any,
    start: int,
    eos: int,
    folder: Path,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
) -> None:
    """Write the model in the format of CTranslate2.

    `source` and `target` are the tokens in the order of their ids. With them, CTranslate2 adds EOS to a source.
    """
    specs = library().specs
    config: TransformerConfig = model.config
    is_gated = config.activation in GATED
    kind = (GATED if is_gated else ACTIVATIONS)[config.activation]
    spec = specs.TransformerSpec.from_config(
        (config.n_encoder_layers, config.n_decoder_layers),
        config.n_heads,
        pre_norm=config.residual == "pre",
        no_final_norm=not config.has_final_norm,
        activation=getattr(specs.Activation, kind),
        layernorm_embedding=config.first_norm,
        ffn_glu=is_gated,
        rms_norm=config.norm == "rms",
    )
    write_stack(spec.encoder, model.encoder, model.source_embedding, is_gated)
    write_stack(spec.decoder, model.decoder, model.target_embedding, is_gated)
    write_linear(spec.decoder.projection, model.unembedding)
    spec.config.add_source_eos = source is not None
    source, target = source or numbers(config.source_vocab), target or numbers(config.target_vocab)
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.eos_token = spec.config.bos_token = target[eos]
    spec.config.unk_token, spec.config.decoder_start_token = target[0], target[start]
    spec.config.layer_norm_epsilon = config.norm_eps or (1e-5 if config.norm == "layer" else 1e-6)
    spec.validate()
    spec.save(str(folder))


def numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def write_stack(spec: Any, stack: Any, table: Any, is_gated: bool) -> None:
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = array(table.weight)
    spec.scale_embeddings = table.scale
    if isinstance(stack.positions, Learned | Sinusoidal):  # others are settings of the attention layers
        spec.position_encodings.encodings = positions(stack.positions)
    if stack.norm is not None:
        write_norm(spec.layer_norm, stack.norm)
    if stack.first_norm is not None:
        write_norm(spec.layernorm_embedding, stack.first_norm)
    for layer, block in zip(spec.layer, stack.blocks):
        write_block(layer, block, is_gated)


def write_block(spec: Any, block: Any, is_gated: bool) -> None:
    write_linear(spec.self_attention.linear[0], block.attn.qkv)
    write_linear(spec.self_attention.linear[1], block.attn.out)
    write_norm(spec.self_attention.layer_norm, block.add_attn.norm)
    if block.has_cross:
        n = block.cross.rows[0]
        write_linear(spec.attention.linear[0], block.cross.qkv, slice(0, n))
        write_linear(spec.attention.linear[1], block.cross.qkv, slice(n, None))
        write_linear(spec.attention.linear[2], block.cross.out)
        write_norm(spec.attention.layer_norm, block.add_cross.norm)
    half = block.mlp.down.in_features if is_gated else None
    write_linear(spec.ffn.linear_0, block.mlp.up, slice(0, half))
    if is_gated:
        write_linear(spec.ffn.linear_0_noact, block.mlp.up, slice(half, None))
    write_linear(spec.ffn.linear_1, block.mlp.down)
    write_norm(spec.ffn.layer_norm, block.add_mlp.norm)


def write_linear(spec: Any, layer: Any, rows: slice = slice(None)) -> None:
    spec.weight = array(layer.weight[rows])
    if layer.bias is not None:
        spec.bias = array(layer.bias[rows])


def write_norm(spec: Any, norm: Any) -> None:
    spec.gamma = array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = array(norm.bias)


def positions(encoding: nn.Module) -> Any:
    if isinstance(encoding, Learned):
        return array(encoding.table.weight[encoding.offset :])
    assert isinstance(encoding, Sinusoidal)
    return array(encoding.table)


def array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
