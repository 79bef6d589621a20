"""Decoding by CTranslate2 of a GPT: its tokens are a prompt and what follows, in one sequence.

    GPT-2      learned positions, a table
    Llama      rotary positions, RMSNorm, gated feed-forward networks, fewer key and value heads than query heads

CTranslate2 scores a prompt token by token if the prompts of a batch differ in length, so a batch has prompts of one
length only.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.checkpoint import fingerprint
from clearformer.errors import CheckpointError
from clearformer.generation import engine_cache
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.interop.ctranslate2 import (
    ACTIVATIONS,
    GATED,
    INSTEAD,
    changed,
    hypotheses,
    library,
    numbers,
    refuse_settings,
    without_parts,
    write_linear,
    write_stack,
)
from clearformer.layers.int8 import Int8Linear
from clearformer.models.gpt import GPTConfig


class CTranslate2Generator:
    """Continues prompts with CTranslate2 instead of the model; `decode` has the signature of `Decoder.decode`."""

    def __init__(self, model: nn.Module, announce: Callable[[str], None] = lambda text: None) -> None:
        library()
        if reason := unsupported(model):
            raise CheckpointError(f"CTranslate2 does not support this model: {reason}", INSTEAD)
        self.model, self.announce = model, announce
        self.generators: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return CTranslate2Generator, (self.model, self.announce)

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
        generator = self.generator(eos)
        mask = torch.ones_like(source, dtype=torch.bool) if mask is None else mask
        texts = [
            [str(token) for token in (*row[seen].tolist(), last)]
            for row, seen, last in zip(source, mask, first.tolist())
        ]
        results: list[list[Hypothesis]] = [[] for _ in texts]
        groups = [(limit, len(text)) for limit, text in zip(limits.tolist(), texts)]
        for limit, length in set(groups):
            rows = [row for row, group in enumerate(groups) if group == (limit, length)]
            outputs = generator.generate_batch(
                [texts[row] for row in rows],
                beam_size=width,
                num_hypotheses=width,
                length_penalty=config.length_penalty,
                min_length=0,
                max_length=limit,
                end_token=[eos],
                include_prompt_in_result=False,
                return_scores=True,
            )
            for row, output in zip(rows, outputs):
                results[row] = hypotheses(Output(output), limit, config)
        return results
        yield  # a generator like `Decoder.decode`, which no caller watches

    def generator(self, eos: int) -> Any:
        """Return the generator of CTranslate2 whose outputs end with the given token."""
        if eos not in self.generators:
            engine = library()
            facts = {
                "engine": "ctranslate2",
                "model": self.model.config.model_dump(mode="json"),  # type: ignore[union-attr, operator]
                "weights": fingerprint(self.model),
                "eos": eos,
                "ctranslate2": engine.__version__,
            }
            folder = engine_cache.find(engine_cache.key_of(facts), self.announce)
            if folder is None:
                self.announce("converting the model for CTranslate2")
                folder = engine_cache.store(facts, lambda draft: convert(self.model, eos, draft))
            is_int8 = any(isinstance(module, Int8Linear) for module in self.model.modules())
            self.generators[eos] = engine.Generator(
                str(folder),
                compute_type="int8" if is_int8 else "float32",
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )
        return self.generators[eos]


class Output:
    """The continuations of a prompt, under the names of a translation."""

    def __init__(self, output: Any) -> None:
        self.hypotheses, self.scores = output.sequences, output.scores


def unsupported(model: Any) -> str | None:
    """Return why a GPT cannot be converted, or None."""
    config: GPTConfig = model.config
    if config.positions.kind not in ("sinusoidal", "learned", "rotary"):
        return f"its positions are {config.positions.kind}, not sinusoidal, learned or rotary"
    if config.prompt == "full":
        return "it reads a prompt in both directions"
    if config.attention_scale is not None:
        return "it sets attention_scale"
    return without_parts(config) or changed(model)


def convert(model: Any, eos: int, folder: Path, tokens: Sequence[str] | None = None) -> None:
    """Write the model in the format of CTranslate2. `tokens` are in the order of their ids."""
    specs = library().specs
    config: GPTConfig = model.config
    is_gated = config.activation in GATED
    kind = (GATED if is_gated else ACTIVATIONS)[config.activation]
    is_rotary = config.positions.kind == "rotary"
    rotary = {"rotary_dim": config.head_width, "rotary_interleave": False, "rotary_base": config.positions.base}
    n_kv_heads = config.n_kv_heads or config.n_heads
    spec = specs.TransformerDecoderModelSpec.from_config(
        config.n_layers,
        config.n_heads,
        pre_norm=config.residual == "pre",
        no_final_norm=not config.has_final_norm,
        activation=getattr(specs.Activation, kind),
        layernorm_embedding=config.first_norm,
        ffn_glu=is_gated,
        rms_norm=config.norm == "rms",
        num_heads_kv=None if n_kv_heads == config.n_heads else n_kv_heads,
        head_dim=config.d_head,
        **(rotary if is_rotary else {}),
    )
    write_stack(spec.decoder, model.decoder, model.embedding, is_gated)
    write_linear(spec.decoder.projection, model.unembedding)
    tokens = tokens or numbers(config.vocab)
    spec.register_vocabulary(list(tokens))
    spec.config.eos_token = spec.config.bos_token = tokens[eos]
    spec.config.unk_token = tokens[0]
    spec.config.layer_norm_epsilon = config.norm_eps or (1e-5 if config.norm == "layer" else 1e-6)
    spec.validate()
    spec.save(str(folder))
