"""A GPT in CTranslate2 against the plain decoder, through the real library."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import clearformer
from clearformer.errors import CheckpointError, ConfigError
from clearformer.generation import engine_cache
from clearformer.generation.decode import DecodeConfig
from clearformer.generation.engine import finished, plain
from clearformer.interop.engines import decoder_for
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.tuning.methods import TuningConfig, tune

pytest.importorskip("ctranslate2")
from clearformer.interop.ctranslate2_gpt import CTranslate2Generator

V, EOS, N, D = 301, 2, 23, 28
LLAMA = {"norm": "rms", "activation": "swiglu", "positions": {"kind": "rotary"}, "bias": False, "tied": False}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "post-norm": {"residual": "post", "activation": "gelu", "norm_eps": 1e-4},
    "sinusoidal": {"positions": {"kind": "sinusoidal"}, "scale_embedding": True, "first_norm": True},
    "llama": {**LLAMA, "n_kv_heads": 1},
    "wide heads": {**LLAMA, "d_head": 6},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path))


def gpt(**settings: Any) -> Any:
    sizes = {"n_layers": 2, "d_model": D, "n_heads": 2, "d_ff": 46, "max_length": 91, "vocab": V, "head_bias": True}
    model = GPT(GPTConfig(**{**sizes, **settings}))
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.5)
    assert model.unembedding.bias is not None
    model.unembedding.bias.data[EOS] = 8.0
    return model.eval()


def arguments(config: DecodeConfig) -> tuple[Any, ...]:
    """Prompts of 1 to 8 tokens, and limits of 1 to 79."""
    generator = torch.Generator().manual_seed(7)
    mask = torch.arange(7) < torch.randint(0, 8, (N, 1), generator=generator)
    source: Tensor = torch.randint(3, V, (N, 7), generator=generator).masked_fill(~mask, 0)
    last, limits = torch.randint(3, V, (N,), generator=generator), torch.randint(1, 80, (N,), generator=generator)
    return source, mask, last, EOS, limits, config, config.beam


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_greedy_search_gives_the_same_tokens_and_scores(name: str) -> None:
    model, config = gpt(**MODELS[name]), DecodeConfig(beam=1)
    expected = finished(plain(model, *arguments(config)))
    actual = finished(CTranslate2Generator(model).decode(*arguments(config)))
    assert [row[0].tokens for row in actual] == [row[0].tokens for row in expected]
    assert len({len(row[0].tokens) for row in expected}) > 3
    for ours, theirs in zip(expected, actual):
        bound = 1e-4 * max(1.0, abs(ours[0].logprob))
        assert theirs[0].logprob == pytest.approx(ours[0].logprob, rel=0, abs=bound)
        assert theirs[0].score == pytest.approx(ours[0].score, rel=0, abs=bound)


@torch.inference_mode()
def test_beam_search_gives_the_same_tokens() -> None:
    """With a small length penalty, the first finished hypotheses are the best, and the rule to stop does not matter."""
    model, config = gpt(), DecodeConfig(beam=4, length_penalty=0.3)
    expected = finished(plain(model, *arguments(config)))
    actual = finished(CTranslate2Generator(model).decode(*arguments(config)))
    assert [row[0].tokens for row in actual] == [row[0].tokens for row in expected]


def test_it_is_converted_once() -> None:
    model = gpt()
    for _ in range(2):
        with torch.inference_mode():
            finished(decoder_for(model, "ctranslate2", lambda text: None).decode(*arguments(DecodeConfig(beam=1))))
    assert [facts["engine"] for facts in engine_cache.stored()] == ["ctranslate2"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"positions": {"kind": "alibi"}}, "its positions are alibi"),
        ({"prompt": "full"}, "it reads a prompt in both directions"),
        ({"attention_scale": 0.3}, "it sets attention_scale"),
    ],
)
def test_architectures_that_it_lacks_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        CTranslate2Generator(gpt(**settings))


def test_prefixes_sampling_and_recurrent_models_are_refused() -> None:
    model = gpt()
    with pytest.raises(ConfigError, match="does not support sampling"):
        finished(CTranslate2Generator(model).decode(*arguments(DecodeConfig(temperature=1.0))))
    tune(model, TuningConfig(method="prefix", base="x"))
    with pytest.raises(CheckpointError, match="prefix tuning"):
        CTranslate2Generator(model)
    with pytest.raises(CheckpointError, match="it is a RNN"):
        decoder_for(RNN(RNNConfig(vocab=V, d_model=7)), "ctranslate2", lambda text: None)


@pytest.mark.slow
def test_generate_takes_the_engine(tmp_path: Path) -> None:
    """The model of zero configuration, from the text to the same continuation."""
    (tmp_path / "text.txt").write_text("one two buckle my shoe\nthree four knock at the door\n" * 61)
    clearformer.train(text=tmp_path / "text.txt", out=tmp_path / "run", steps=20, device="cpu")
    settings = {"temperature": 0, "max_new": 13}
    prompts = ["one two", "three four knock"]
    expected = clearformer.generate(tmp_path / "run", prompts, **settings)
    actual = clearformer.generate(tmp_path / "run", prompts, engine="ctranslate2", **settings)
    for (ours,), (theirs,) in zip(expected, actual, strict=True):
        assert (theirs.text, theirs.tokens, theirs.ended) == (ours.text, ours.tokens, ours.ended)
        assert theirs.logprob == pytest.approx(ours.logprob, rel=0, abs=1e-4 * max(1.0, abs(ours.logprob)))
