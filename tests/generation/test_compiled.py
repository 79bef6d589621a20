"""Compiled steps against the plain decoder, and when they are used."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.errors import MachineError
from clearformer.generation import compiled
from clearformer.generation.compiled import Compiler, Part, attention, can_compile, example, linear, tensors_of
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.engine import Decoder, finished, plain
from clearformer.layers.linear import pack
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.transformer import Transformer, TransformerConfig

V, BOS, EOS = 301, 1, 2
GREEDY = DecodeConfig(beam=1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


def transformer(seed: int = 3, d_ff: int = 7) -> Any:
    config = TransformerConfig(
        source_vocab=V, target_vocab=V, n_encoder_layers=1, n_decoder_layers=1, d_model=22, n_heads=2, d_ff=d_ff,
        share="none", max_length=91, head_bias=True,
    )  # fmt: skip
    return restless(Transformer(config), seed, eos_bias=5.0)


def gpt(seed: int = 3) -> Any:
    config = GPTConfig(vocab=V, n_layers=1, d_model=28, n_heads=2, n_kv_heads=1, d_ff=7, max_length=113,
                       positions={"kind": "rotary"}, tied=False, head_bias=True)  # fmt: skip
    return restless(GPT(config), seed, eos_bias=4.0)


def restless(model: Any, seed: int, eos_bias: float) -> Any:
    """Draw weights with which outputs differ in length."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    model.unembedding.bias.data[EOS] = eos_bias
    return model.eval()


def arguments(i: int, config: DecodeConfig = GREEDY) -> tuple[Any, ...]:
    """The arguments of `decode` for sentence number i, of 1 to 29 tokens."""
    generator = torch.Generator().manual_seed(i)
    source = torch.randint(3, V, (1, 1 + 7 * i % 29), generator=generator)
    return source, None, torch.tensor([BOS]), EOS, torch.tensor([79]), config, config.beam


def decoded(decoder: Decoder, *args: Any) -> list[Hypothesis]:
    with torch.inference_mode():
        return finished(decoder.decode(*args))[0]


def expected(model: Any, *args: Any) -> list[Hypothesis]:
    with torch.inference_mode():
        return finished(plain(model, *args))[0]


def test_products_and_attention_as_sums_are_the_operations_that_they_replace() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(1, 1, 11).double(), torch.randn(7, 11).double(), torch.randn(7).double()
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
    assert linear(x.expand(2, 3, 11), weight, bias) is NotImplemented
    for H, G in ((6, 6), (6, 3)):
        q, k, v = (torch.randn(2, n, t, 5).double() for n, t in ((H, 4), (G, 13), (G, 13)))
        mask = torch.randn(2, 1, 4, 13).double()
        for given in (None, mask, mask.expand(2, H, 4, 13)):
            theirs = F.scaled_dot_product_attention(q, k, v, given, scale=0.3, enable_gqa=H != G)
            torch.testing.assert_close(attention(q, k, v, given, scale=0.3, enable_gqa=H != G), theirs)


@pytest.mark.parametrize("width", [1, 3])
def test_a_part_is_the_method_of_its_table_as_a_function_of_all_tensors(width: int) -> None:
    """If a tensor were missing among the inputs, the part would write to the table that it was traced from."""
    model, config = transformer(), DecodeConfig(beam=width)
    traced, ours, reference = (example(model, EOS, config, width) for _ in range(3))
    before = [tensor.clone() for tensor in tensors_of(traced, "read")]
    source, _, first, _, limits, _, _ = arguments(3)
    for table in (ours, reference):
        with torch.no_grad():
            table.begin(source, None, first, limits, ())
    for _ in range(5):
        with torch.no_grad():
            Part(traced, "step")(*tensors_of(ours, "step"))
            reference.step()
    for ours_one, reference_one in zip(tensors_of(ours, "read"), tensors_of(reference, "read")):
        assert torch.equal(ours_one, reference_one)
    assert all(map(torch.equal, before, tensors_of(traced, "read")))
    assert reference.policy.length.item() > 0


def key(model: Any, eos: int = EOS, config: DecodeConfig = GREEDY, width: int = 1) -> str:
    return compiled.engine_cache.key_of(Compiler(model, print).facts(eos, config, width))


def test_the_key_depends_on_all_that_is_compiled_and_not_on_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    base = key(transformer())
    assert key(transformer(seed=5)) == base  # programs read the weights of the model
    assert key(transformer(), config=GREEDY.changed(max_ratio=3.0, length_penalty=0.5)) == base
    changed = [
        key(transformer(d_ff=11)), key(transformer(), eos=3), key(transformer(), width=3), key(gpt()),
        key(transformer(), config=GREEDY.changed(min_length=5)), key(pack(transformer())),
        key(transformer(), config=GREEDY.changed(length_penalty=0.5), width=3),
    ]  # fmt: skip
    monkeypatch.setattr(torch, "__version__", "2.0.0")
    changed.append(key(transformer()))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": False})
    changed.append(key(transformer()))
    assert len({base, *changed}) == 1 + len(changed)


def test_auto_without_engines_decodes_plainly_and_compiles_nothing(cache: Path) -> None:
    model = transformer()
    decoder = Decoder(model)
    assert decoded(decoder, *arguments(3)) == expected(model, *arguments(3))
    assert not cache.exists()
    cache.mkdir(parents=True, mode=0o700)
    assert decoded(decoder, *arguments(3)) == expected(model, *arguments(3))
    assert list(cache.iterdir()) == []


def test_without_a_compiler_auto_falls_back_and_compiled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    model = transformer()
    assert decoded(Decoder(model), *arguments(3)) == expected(model, *arguments(3))
    with pytest.raises(MachineError, match=r"needs a C\+\+ compiler"):
        decoded(Decoder(model, "compiled"), *arguments(3))


def test_what_is_not_compiled_falls_back() -> None:
    model = transformer()
    decoder = Decoder(model, "compiled")
    assert decoder.compiled_decoder(2, EOS, GREEDY, 1) is None  # several sentences
    assert decoder.compiled_decoder(1, EOS, GREEDY.changed(temperature=1.0), 1) is None
    assert can_compile(model)
    assert not can_compile(transformer().double())
    assert not can_compile(transformer().train())
    hook = model.encoder.register_forward_hook(lambda *_: None)
    assert decoder.compiled_decoder(1, EOS, GREEDY, 1) is None
    hook.remove()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(compiled.cpp_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(("name", "width"), [("transformer", 1), ("transformer", 3), ("gpt", 1)])
def test_compiled_steps_give_the_tokens_of_plain_ones(name: str, width: int, cache: Path) -> None:
    """Outputs of up to 79 tokens outgrow the first table twice; sources of up to 29 tokens use tables of four sizes."""
    model = pack({"transformer": transformer, "gpt": gpt}[name]())
    config = DecodeConfig(beam=width)
    lines: list[str] = []
    built = Decoder(model, "compiled", lines.append)
    compare(model, built, config)
    assert [line.split()[0] for line in lines] == ["compiling", "compiled"]
    other = pack({"transformer": transformer, "gpt": gpt}[name](seed=5))
    reused = Decoder(other)
    compare(other, reused, config)  # the same program, the weights of another model
    assert reused.compiler is not None
    assert all(decoder is not None for decoder in reused.compiler.decoders.values())
    other.unembedding.bias = nn.Parameter(other.unembedding.bias.detach() + torch.randn(V))  # at another address
    compare(other, reused, config)
    (path,) = cache.iterdir()
    (path / "step.pt2").write_bytes(b"not a program")
    with pytest.warns(UserWarning, match="damaged"):
        compare(other, Decoder(other), config)


def compare(model: Any, decoder: Decoder, config: DecodeConfig) -> None:
    lengths = set()
    for i in range(8):
        ours, theirs = decoded(decoder, *arguments(i, config)), expected(model, *arguments(i, config))
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)
        lengths |= {len(h.tokens) for h in theirs}
    assert len(lengths) > 2
