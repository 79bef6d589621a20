"""Decoding by CTranslate2 against the plain decoder, through the real library."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.errors import CheckpointError, ConfigError
from clearformer.generation import engine_cache
from clearformer.generation.decode import DecodeConfig
from clearformer.generation.engine import finished, plain
from clearformer.layers.int8 import quantize
from clearformer.layers.linear import pack
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.tuning.methods import TuningConfig, tune

from ..bounds import float32_bounds_of

pytest.importorskip("ctranslate2")
from clearformer.interop.ctranslate2 import CTranslate2Decoder

V, BOS, EOS, N, D = 301, 1, 2, 23, 26
MODELS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"residual": "post", "activation": "gelu", "norm_eps": 1e-4, "scale_embedding": False},
    "gated": {"positions": {"kind": "learned", "offset": 2}, "activation": "swiglu", "norm": "rms", "share": "decoder",
              "bias": False, "first_norm": True},
    "tied": {"share": "all", "positions": {"kind": "sinusoidal", "layout": "halves"}, "final_norm": False},
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path))


def transformer(**settings: Any) -> Any:
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": D, "n_heads": 2, "d_ff": 7, "max_length": 91}
    base = {"source_vocab": V, "target_vocab": V, "share": "none", "head_bias": True}
    model = Transformer(TransformerConfig(**{**base, **sizes, **settings}))
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.5)
    assert model.unembedding.bias is not None
    model.unembedding.bias.data[EOS] = 6.0
    return model.eval()


def arguments(config: DecodeConfig) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(7)
    mask = torch.arange(7) < torch.randint(1, 8, (N, 1), generator=generator)
    source: Tensor = torch.randint(3, V, (N, 7), generator=generator).masked_fill(~mask, 0)
    limits = torch.randint(1, 80, (N,), generator=generator)
    return source, mask, torch.full((N,), BOS), EOS, limits, config, config.beam


def both(model: Any, config: DecodeConfig) -> tuple[Any, Any]:
    with torch.inference_mode():
        theirs = finished(CTranslate2Decoder(pack(deepcopy(model))).decode(*arguments(config)))
        return finished(plain(model, *arguments(config))), theirs


def scores(rows: Any) -> Tensor:
    """(n, 2): the score and the log-probability of the best hypothesis of each row."""
    return torch.tensor([[row[0].score, row[0].logprob] for row in rows], dtype=torch.float64)


def assert_same_scores(model: Any, config: DecodeConfig, expected: Any, actual: Any) -> None:
    """Both columns, within what the longest product (D terms) of the model may lose to rounding."""

    def run(other: Any) -> list[Tensor]:
        with torch.inference_mode():
            return list(scores(finished(plain(other, *arguments(config)))).T)

    for ours, theirs, bound in zip(scores(expected).T, scores(actual).T, float32_bounds_of(model, run, D)):
        assert (ours - theirs).abs().max().item() <= bound


@pytest.mark.parametrize("settings", [{}, {"length_penalty": 0.6}])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_search_gives_the_same_tokens_and_scores(name: str, settings: dict[str, Any]) -> None:
    model, config = transformer(**MODELS[name]), DecodeConfig(beam=1, **settings)
    expected, actual = both(model, config)
    assert [row[0].tokens for row in actual] == [row[0].tokens for row in expected]
    assert_same_scores(model, config, expected, actual)
    assert len({len(row[0].tokens) for row in expected}) > 3


def test_beam_search_gives_the_same_tokens_and_scores() -> None:
    """With a small length penalty, the first finished hypotheses are the best, and the rule to stop does not matter."""
    model, config = transformer(), DecodeConfig(beam=4, length_penalty=0.3)
    expected, actual = both(model, config)
    assert [row[0].tokens for row in actual] == [row[0].tokens for row in expected]
    assert_same_scores(model, config, expected, actual)
    assert len({len(row[0].tokens) for row in expected}) > 3


def test_a_model_in_int8_decodes_in_int8() -> None:
    decoder = CTranslate2Decoder(quantize(transformer()))
    with torch.inference_mode():
        outputs = finished(decoder.decode(*arguments(DecodeConfig(beam=1))))
    (translator,) = decoder.translators.values()
    assert translator.compute_type.startswith("int8")
    assert len(outputs) == N


def test_changed_weights_are_converted_once_more() -> None:
    model = transformer()
    both(model, DecodeConfig(beam=1))
    both(model, DecodeConfig(beam=1))
    assert len(engine_cache.stored()) == 1
    model.unembedding.weight.data *= -1.0
    expected, actual = both(model, DecodeConfig(beam=1))
    assert [row[0].tokens for row in actual] == [row[0].tokens for row in expected]
    assert [facts["engine"] for facts in engine_cache.stored()] == ["ctranslate2"] * 2


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"temperature": 1.0}, "sampling"),
        ({"penalty": "gnmt"}, "penalty = gnmt"),
        ({"stop": "never"}, "stop = never"),
        ({"min_length": 3}, "min_length = 3"),
        ({"repetition_penalty": 1.5}, "repetition_penalty = 1.5"),
    ],
)
def test_settings_that_it_lacks_are_refused(settings: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=f"does not support {part}"):
        finished(CTranslate2Decoder(transformer()).decode(*arguments(DecodeConfig(**settings))))


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"positions": {"kind": "alibi"}}, "its positions are alibi"),
        ({"n_kv_heads": 1}, "it sets n_kv_heads"),
        ({"scale_head": True}, "it sets scale_head"),
    ],
)
def test_architectures_that_it_lacks_are_refused(settings: dict[str, Any], part: str) -> None:
    with pytest.raises(CheckpointError, match=part):
        CTranslate2Decoder(transformer(**settings))


def test_other_models_and_prefixes_are_refused() -> None:
    with pytest.raises(CheckpointError, match="it is a GPT"):
        CTranslate2Decoder(GPT(GPTConfig(vocab=V, n_layers=1, d_model=14, n_heads=2, d_ff=7)))
    model = transformer()
    tune(model, TuningConfig(method="prefix", base="x"))
    with pytest.raises(CheckpointError, match="prefix tuning"):
        CTranslate2Decoder(model)
