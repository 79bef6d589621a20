import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.checkpoint import load_tensors, load_weights, save_tensors, weights_of
from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError, ConfigError
from clearformer.layers.attention import Core, MultiHeadAttention, PlainCore, attend
from clearformer.layers.backends import FusedCore, RecordingCore, recording
from clearformer.layers.masks import Ancestors, Causal, Documents, Mask, Padding
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.objectives.translation import Translation
from clearformer.training.optim import OptimConfig
from clearformer.tuning.adapters import add_lora
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.prefix import (
    Prefix,
    PrefixConfig,
    PrefixCore,
    ReparameterisedPrefix,
    add_prefix,
    fold,
    is_prefix,
    load_prefix,
    prefix_weights,
    remove_prefix,
)

B, T, S, V, P = 2, 3, 5, 23, 7
CPU = torch.device("cpu")
PLAIN, MADE = PrefixConfig(length=P), PrefixConfig(length=P, d_hidden=11)


def build(seed: int = 0, core: Core | None = None, **fields: Any) -> Transformer:
    torch.manual_seed(seed)
    config = TransformerConfig(
        **{
            "source_vocab": V, "target_vocab": V, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 12,
            "d_ff": 13, "n_heads": 6, "n_kv_heads": 2, "dropout": 0.0, **fields,
        }
    )  # fmt: skip
    return Transformer(config, core).double().eval()


def prefixed(config: PrefixConfig = PLAIN, **fields: Any) -> Transformer:
    """Random and loud, so that it does something."""
    model = add_prefix(build(**fields), config)
    torch.manual_seed(7)
    for name, parameter in model.named_parameters():
        if is_prefix(name):
            nn.init.normal_(parameter)
    return model  # type: ignore[return-value]


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    source, target, labels = (torch.randint(V, (B, n), generator=generator) for n in (S, T, T))
    return Batch(source, torch.tensor([[True] * S, [True] * 3 + [False] * 2]), target, labels)


MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": Causal(),
    "padding": Padding(torch.tensor([[True] * 2 + [False] * 3, [True] * S])),
    "documents": Documents(torch.tensor([[0, 0, 1, 1, 1], [3, 5, 5, 7, 7]])) & Causal(),
    "ancestors": Ancestors(torch.arange(B * S * S).view(B, S, S) % 3 < 1),
    "nothing-to-see": Padding(torch.tensor([[False] * S, [True] * S])),
}


@pytest.mark.parametrize("core", [PlainCore(), FusedCore(), RecordingCore(FusedCore())], ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", [(6, S, S), (B, 6, S, S), (6, S, 1), None], ids=["bias", "each", "flat", "bare"])
def test_it_is_attention_with_p_more_keys(core: Core, mask: str, bias: tuple[int, ...] | None) -> None:
    """Computed by hand: keys and values side by side, the mask open and the bias zero before the real ones."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, n, S, w).double() for n, w in ((6, 3), (2, 3), (2, 5)))
    prefix = Prefix(torch.randn(2, P, 3).double(), torch.randn(2, P, 5).double())
    told = None if bias is None else torch.randn(bias).double()
    tuned, described = PrefixCore(core, prefix, P), MASKS[mask]
    z = tuned(q, k, v, tuned.lower(described, S, S, CPU), told, 0.3, 0.0)

    keys, values = (torch.cat([x.expand(B, -1, -1, -1), y], dim=2) for x, y in zip(prefix(), (k, v)))
    seen = torch.ones(B, 1, S, S, dtype=torch.bool) if described is None else described.dense(S, S, CPU)
    seen = torch.cat([torch.ones(len(seen), 1, S, P, dtype=torch.bool), seen], dim=3)
    if told is not None:
        told = told.expand(*told.shape[:-1], S)
        told = torch.cat([torch.zeros(*told.shape[:-1], P).double(), told], dim=-1)
    torch.testing.assert_close(z, attend(q, keys, values, seen, told, 0.3))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "t5"])
@pytest.mark.parametrize("core", [PlainCore(), FusedCore()], ids=["plain", "fused"])
def test_cached_decoding_is_one_pass(positions: str, core: Core) -> None:
    model, b = prefixed(core=core, positions={"kind": positions}), batch()
    with torch.inference_mode():
        whole, state = model(b), model.start(b.source, b.source_mask)
        steps: list[Tensor] = []
        for t in range(T):
            logits, state = model.step(b.target[:, t : t + 1], state)
            steps.append(logits)
        torch.testing.assert_close(torch.cat(steps, dim=1), whole)
        state = model.start(b.source, b.source_mask)  # two branches a sentence, which see only themselves
        pairs = b.target[:, :2]
        first, state = model.step(pairs, state)
        torch.testing.assert_close(first[:, :1], whole[:, :1])
    assert (whole - build(core=core, positions={"kind": positions})(b)).abs().max() > 0.1


class CountingCore(FusedCore):
    n_lowered = 0

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: Any = None) -> Any:
        self.n_lowered += 1
        return super().lower(mask, T, S, device, dtype)


def test_masks_are_lowered_once_for_all_layers() -> None:
    """Encoder, decoder and cross-attention, in 2 layers each; a layer with a prefix of another length lowers itself."""
    core = CountingCore()
    model, b = prefixed(core=core), batch()
    expected, core.n_lowered = model(b), 0
    assert model(b).equal(expected)
    assert core.n_lowered == 3
    layer = model.decoder.blocks[1].cross
    layer.core = PrefixCore(core, Prefix(*(x[:, :2] for x in layer.prefix())), 2)
    core.n_lowered = 0
    assert not model(b).equal(expected)
    assert core.n_lowered == 4


@pytest.mark.skipif(torch.__version__ < "2.12", reason="Dynamo could not trace a frozen dataclass's fields")
def test_a_model_with_a_prefix_is_one_graph() -> None:
    model, b = prefixed(), batch()
    whole = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(whole(b), model(b), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("core", [PlainCore(), FusedCore()], ids=["plain", "fused"])
def test_what_is_recorded_is_what_is_computed(core: Core) -> None:
    """The pattern over prefix and real keys, times both values, is what the heads hand to the output matrix."""
    model, b, heads = prefixed(core=core), batch(), list[Tensor]()
    layers, expected = [block.cross for block in model.decoder.blocks], model(b)
    before, memory = [layer.core for layer in layers], model.encode(b.source, b.source_mask)
    for layer in layers:
        layer.out.register_forward_pre_hook(lambda _, told: heads.append(told[0]))
    with recording(model.decoder) as recorders:
        assert model(b).equal(expected)
    assert [layer.core for layer in layers] == before
    for layer, recorder, z in zip(layers, recorders[1::2], heads):
        [looks] = recorder.record
        assert looks.shape == (B, 6, T, P + S)
        torch.testing.assert_close(looks.sum(-1), torch.ones(B, 6, T).double())
        assert looks[..., P:].sum(-1).max() < 0.9  # the real keys' share
        assert not looks[1, ..., P + 3 :].any()  # padding
        values = torch.cat([layer.prefix.v.expand(B, -1, -1, -1), layer.remember(memory)[1]], dim=2)
        torch.testing.assert_close(z, (looks @ values.repeat_interleave(3, dim=1)).transpose(1, 2).flatten(2))


def test_padding_and_the_future_still_cannot_matter() -> None:
    model, b = prefixed(), batch()
    source, target = b.source.clone(), b.target.clone()
    source[1, 3:], target[:, 2] = 1, 5
    other = model(Batch(source, b.source_mask, target, b.labels))
    torch.testing.assert_close(other[:, :2], model(b)[:, :2])


def test_every_attention_has_its_own() -> None:
    model = prefixed()
    named = [name for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
    assert len(named) == 6
    assert set(prefix_weights(model)) == {f"{name}.{side}" for name in named for side in "kv"}
    assert prefix_weights(model)["decoder.blocks.1.cross.k"].shape == (2, P, 2)


@pytest.mark.parametrize("config", [PLAIN, MADE], ids=["plain", "made"])
def test_only_the_prefix_learns(config: PrefixConfig) -> None:
    model, b = add_prefix(build(), config).train(), batch()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = OptimConfig(kind="adam", lr=1e-2).build(model)
    for _ in range(3):
        optimizer.zero_grad()
        Translation(Translation.Config())(model, b).total.backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None) == is_prefix(name)
        assert parameter.equal(before[name]) != is_prefix(name)


def test_an_mlp_is_folded_away() -> None:
    model, b = prefixed(MADE), batch()
    attn, cross = model.decoder.blocks[0].attn, model.decoder.blocks[1].cross
    assert isinstance(attn.prefix, ReparameterisedPrefix)
    assert attn.prefix.trunk is model.decoder.blocks[1].attn.prefix.trunk  # one a stack and kind, as the paper has it
    assert attn.prefix.trunk is not cross.prefix.trunk
    hidden = torch.tanh(cross.prefix.trunk.up(cross.prefix.trunk.table))  # (P, 11)
    by_hand = (hidden @ cross.prefix.down.weight.T + cross.prefix.down.bias).view(P, 2, 4)  # (P, G, K + N)
    expected, before = model(b), prefix_weights(model)
    torch.testing.assert_close(before["decoder.blocks.1.cross.v"], by_hand[..., 2:].transpose(0, 1))
    fold(model)
    assert isinstance(attn.prefix, Prefix)
    assert model(b).equal(expected)
    assert [
        name for name in model.state_dict() if "trunk" in name or ("down.weight" in name and "prefix" in name)
    ] == []
    assert all(tensor.equal(before[name]) for name, tensor in prefix_weights(model).items())
    assert fold(model)(b).equal(expected)  # nothing is left to fold


@pytest.mark.parametrize("config", [PLAIN, MADE], ids=["plain", "made"])
def test_copies_and_saving(config: PrefixConfig, tmp_path: Path) -> None:
    model, b = prefixed(config), batch()
    expected = model(b)
    twin = copy.deepcopy(model)
    for name, parameter in model.named_parameters():
        if is_prefix(name):
            nn.init.zeros_(parameter)
    assert twin(b).equal(expected)
    assert not model(b).equal(expected)
    save_tensors(tmp_path / "model.safetensors", weights_of(twin))
    load_weights(model, load_tensors(tmp_path / "model.safetensors")[0], "model.safetensors")
    assert model(b).equal(expected)


def test_a_prefix_by_itself(tmp_path: Path) -> None:
    model, b = prefixed(MADE), batch()
    save_tensors(tmp_path / "prefix.safetensors", prefix_weights(model))
    other = load_prefix(build(), load_tensors(tmp_path / "prefix.safetensors")[0])
    assert other(b).equal(model(b))
    assert all(parameter.requires_grad == is_prefix(name) for name, parameter in other.named_parameters())


def test_removing_it_leaves_the_model_as_it_was() -> None:
    model, b = build(), batch()
    names, expected, core = list(model.state_dict()), model(b), model.encoder.blocks[0].attn.core
    add_prefix(model, PLAIN)
    assert [name for name in model.state_dict() if not is_prefix(name)] == names
    remove_prefix(model)
    assert list(model.state_dict()) == names
    assert model.encoder.blocks[0].attn.core is core
    assert model(b).equal(expected)


def test_with_lora_beside_it() -> None:
    model, b = prefixed(), batch()
    expected = model(b)
    add_lora(model, LoraConfig())
    assert model(b).equal(expected)
    assert not any(parameter.requires_grad for name, parameter in model.named_parameters() if is_prefix(name))


def test_half_precision_by_autocast() -> None:
    model, b = prefixed(), batch()
    expected = model(b).float()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model.float()(b).float(), expected, atol=0.1, rtol=0.1)


def test_what_does_not_fit_is_refused() -> None:
    model = prefixed()
    weights = prefix_weights(model)
    with pytest.raises(ConfigError, match="already"):
        add_prefix(model, PLAIN)
    with pytest.raises(ConfigError, match="has no attention layers"):
        add_prefix(nn.Linear(2, 3), PLAIN)
    for missing in (fold, remove_prefix, prefix_weights):
        with pytest.raises(ConfigError, match="has no prefix"):
            missing(build())
    first = "decoder.blocks.0.attn.k"
    for bad, match in (
        ({name: tensor for name, tensor in weights.items() if name != first}, f"lacks `{first}`"),
        ({name: tensor[0, 0] for name, tensor in weights.items()}, r"has the shape \(2,\), not \(2, 0, 2\)"),
        ({**weights, "z.k": weights[first]}, "unknown tensor `z.k`"),
        ({**weights, first: torch.zeros(3, P, 2)}, r"attn.k` has the shape \(3, 7, 2\), not \(2, 7, 2\)"),
        ({**weights, first: torch.zeros(2, P + 1, 2)}, r"has the shape \(2, 8, 2\), not \(2, 7, 2\)"),
    ):
        bare = build()
        with pytest.raises(CheckpointError, match=match):
            load_prefix(bare, bad)
        assert list(bare.state_dict()) == list(build().state_dict())
