"""Adapters on a whole model."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, load_tensors, load_weights, save_tensors, weights_of
from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError, ConfigError
from clearformer.layers.linear import PackedLinear, pack
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.objectives.translation import Translation
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.schedules import ScheduleConfig
from clearformer.tuning.adapters import (
    adapters,
    add_lora,
    load_lora,
    lora_weights,
    merge,
    of_lora,
    places,
    switch,
    unmerge,
)
from clearformer.tuning.freeze import freeze
from clearformer.tuning.lora import LoraConfig, LoraLinear

from ..bounds import float32_bound_of

B, T, S, V, R = 2, 3, 5, 23, 3
EVERYWHERE = ("q", "k", "v", "out", "gate", "value", "down")


def build(seed: int = 0, **fields: Any) -> Transformer:
    torch.manual_seed(seed)
    config = TransformerConfig(
        **{
            "source_vocab": V, "target_vocab": V, "n_encoder_layers": 2, "n_decoder_layers": 1, "d_model": 12,
            "d_ff": 13, "n_heads": 6, "n_kv_heads": 2, "activation": "swiglu", "dropout": 0.0, **fields,
        }
    )  # fmt: skip
    return Transformer(config).eval()


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    source, target, labels = (torch.randint(V, (B, n), generator=generator) for n in (S, T, T))
    return Batch(source, torch.tensor([[True] * S, [True] * 3 + [False] * 2]), target, labels)


def with_adapter(model: Transformer, name: str = "fr", seed: int = 7, **fields: Any) -> Transformer:
    """B random, so that it does something."""
    add_lora(model, LoraConfig(**{"rank": R, "alpha": 5, **fields}), name)
    torch.manual_seed(seed)
    for parameter_name, parameter in model.named_parameters():
        if of_lora(name)(parameter_name):
            nn.init.normal_(parameter)
    return model


def test_the_places_of_a_model() -> None:
    found = places(build())
    where = {name: (place.layer, place.start, place.stop) for name, place in found.items()}
    qkv = "decoder.blocks.0.cross.qkv"
    assert where["decoder.blocks.0.cross.q"] == (qkv, 0, 12)
    assert where["decoder.blocks.0.cross.k"] == (qkv, 12, 16)
    assert where["decoder.blocks.0.cross.v"] == (qkv, 16, 20)
    assert where[qkv] == (qkv, 0, 20)
    assert where["encoder.blocks.1.mlp.value"] == ("encoder.blocks.1.mlp.up", 13, 26)
    assert where["unembedding"] == ("unembedding", 0, V)
    assert set(places(with_adapter(build()))) == set(found)  # and there may be a second adapter


def test_the_default_is_queries_and_values_of_every_attention() -> None:
    model = with_adapter(build())
    names = {key.removesuffix(".A") for key in lora_weights(model, "fr") if key.endswith(".A")}
    attentions = ("encoder.blocks.0.attn", "encoder.blocks.1.attn", "decoder.blocks.0.attn", "decoder.blocks.0.cross")
    assert names == {f"{attention}.{part}" for attention in attentions for part in "qv"}


def test_a_fresh_adapter_changes_nothing() -> None:
    model, b = build(), batch()
    before = model(b)
    add_lora(model, LoraConfig())
    assert model(b).equal(before)
    assert adapters(model) == ["default"]


@pytest.mark.parametrize("targets", [("q", "v"), ("attn.qkv", "cross.k"), EVERYWHERE, ("decoder.*.out", "mlp.up")])
def test_it_is_the_model_with_the_products_added_to_its_weights(targets: tuple[str, ...]) -> None:
    model, b = build().double(), batch()
    other = copy.deepcopy(model)
    with_adapter(model, targets=targets)
    for key, A in lora_weights(model, "fr").items():
        if key.endswith(".A"):
            at = places(model)[key.removesuffix(".A")]
            change = 5 / R * lora_weights(model, "fr")[f"{at.name}.B"] @ A
            other.get_submodule(at.layer).weight.data[at.start : at.stop] += change  # type: ignore[operator]
    torch.testing.assert_close(model(b), other(b))
    assert (model(b) - build().double()(b)).abs().max() > 0.1


def test_only_the_adapter_learns() -> None:
    model, b = with_adapter(build(), targets=EVERYWHERE), batch()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = OptimConfig(kind="adam", lr=1e-2).build(model)
    for _ in range(3):
        optimizer.zero_grad()
        Translation(Translation.Config())(model.train(), b).total.backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        is_new = of_lora("fr")(name)
        assert parameter.requires_grad == (parameter.grad is not None) == is_new
        assert parameter.equal(before[name]) != is_new


class OneBatch:
    group = 1

    def count(self, epoch: int) -> int:
        return 1

    def load(self, epoch: int, position: int, world: World) -> tuple[list[Batch], int]:
        return [batch()], batch().n_tokens


def trainer(folder: Path, steps: int) -> Trainer:
    model = add_lora(build(), LoraConfig(rank=R, dropout=0.1, targets=EVERYWHERE), "fr")
    config = TrainConfig(steps=steps, save_every=5, log_every=5, validate_every=5, ema=0.5)
    schedule, objective = ScheduleConfig(kind="constant", warmup=0), Translation(Translation.Config())
    optimizer, cpu = OptimConfig(lr=3e-2).build(model), torch.device("cpu")
    return Trainer(model, objective, optimizer, schedule, config, RunFolder(folder), cpu, World())


def test_the_trainer_trains_saves_and_resumes_an_adapter(tmp_path: Path) -> None:
    straight = trainer(tmp_path / "straight", 10)
    straight.train(OneBatch())
    trainer(tmp_path / "broken", 5).train(OneBatch())
    resumed = trainer(tmp_path / "broken", 10)
    resumed.resume()
    assert resumed.progress.step == 5
    resumed.train(OneBatch())
    weights, again = (load_tensors(tmp_path / run / "model.safetensors")[0] for run in ("straight", "broken"))
    assert all(tensor.equal(again[name]) for name, tensor in weights.items())
    assert all(tensor.equal(weights[name]) for name, tensor in weights_of(build()).items())  # not averaged either
    saved = load_tensors(tmp_path / "straight" / "last.safetensors")[0]
    assert all(of_lora("fr")(name) for name in saved if name.startswith("optimizer."))
    losses = [x["loss"] for x in read_metrics(tmp_path / "straight" / "metrics.jsonl") if x["kind"] == "train"]
    assert losses[1] < losses[0]


def test_names_and_ties_stay() -> None:
    model = build()
    own = list(model.state_dict())
    with_adapter(model, targets=("q", "unembedding"))
    assert [name for name in model.state_dict() if "lora_" not in name] == own
    assert model.unembedding.weight is model.target_embedding.weight is model.source_embedding.weight
    assert "encoder.blocks.0.attn.qkv.lora_fr.q.A" in model.state_dict()
    twin = copy.deepcopy(model)
    assert twin.unembedding.weight is twin.target_embedding.weight is not model.target_embedding.weight


def test_switching_is_building_anew() -> None:
    model, b = build(), batch()
    plain = model(b)
    with_adapter(model, "fr", 7)
    with_adapter(model, "de", 11, targets=("k", "mlp.up"), alpha=2)
    assert adapters(model) == ["fr", "de"]
    french, german = with_adapter(build(), "x", 7), with_adapter(build(), "x", 11, targets=("k", "mlp.up"), alpha=2)
    for name, expected in (("fr", french(b)), ("de", german(b)), (None, plain), ("fr", french(b))):
        assert switch(model, name)(b).equal(expected)


def test_a_second_adapter_is_the_one_that_learns() -> None:
    model = with_adapter(with_adapter(build(), "fr"), "de")
    assert all(of_lora("de")(name) == p.requires_grad for name, p in model.named_parameters())
    freeze(switch(model, "fr"), of_lora("fr"))
    assert all(of_lora("fr")(name) == p.requires_grad for name, p in model.named_parameters())


def test_merged_and_unmerged() -> None:
    """In float64: W x + s B A x and (W + s B A) x round differently, and pairs as loud as these amplify it."""
    model, b = with_adapter(build().double(), targets=EVERYWHERE), batch()
    expected, before = model(b), {name: x.clone() for name, x in model.state_dict().items()}
    merge(model)
    torch.testing.assert_close(model(b), expected)
    assert list(model.state_dict()) == list(build().state_dict())
    plain = build(1).double()
    load_weights(plain, weights_of(model), "merged")  # a model like any other
    assert plain(b).equal(model(b))
    unmerge(model)
    assert all(x.equal(before[name]) for name, x in model.state_dict().items())
    assert list(model.state_dict()) == list(before)
    assert model(b).equal(expected)


def test_merged_models_can_be_packed_and_adapted_ones_are_left_alone() -> None:
    model, b = with_adapter(build()), batch()
    expected, bound = model(b), float32_bound_of(model, lambda other: other(b), n_terms=13)  # features, at most
    with torch.inference_mode():
        packed = pack(copy.deepcopy(model))
        assert type(packed.encoder.blocks[0].attn.qkv) is LoraLinear  # type: ignore[index, union-attr]
        assert (packed(b) - expected).abs().max() <= bound
        packed = pack(merge(copy.deepcopy(model)))
        assert type(packed.encoder.blocks[0].attn.qkv) is PackedLinear  # type: ignore[index, union-attr]
        assert (packed(b) - expected).abs().max() <= bound
        assert unmerge(packed)(b).equal(packed(b))
        assert (packed(b) - expected).abs().max() <= bound


def test_what_a_merged_model_keeps_moves_and_is_copied_along() -> None:
    model, b = with_adapter(build()), batch()
    twin = copy.deepcopy(merge(model)).double().train()
    assert unmerge(twin).encoder.blocks[0].attn.qkv.weight.dtype == torch.float64  # type: ignore[union-attr]
    assert all(parameter.dtype == torch.float64 for parameter in twin.parameters())
    assert all(module.training for module in twin.modules())
    bound = float32_bound_of(model, lambda other: other(b), n_terms=13)
    assert (twin(b).float() - model(b)).abs().max() <= bound


def test_merging_leaves_tied_weights_tied_or_does_not_happen() -> None:
    model, b = with_adapter(build().double(), "head", targets=("unembedding",)), batch()
    with pytest.raises(ConfigError, match="target_embedding and unembedding are tied"):
        merge(model)
    with_adapter(model, "fr")
    expected = model(b)
    merge(model)  # the head's adapter is not active: its weight stays, and stays tied
    assert model.unembedding.weight is model.target_embedding.weight
    torch.testing.assert_close(model(b), expected)


def test_an_adapter_by_itself(tmp_path: Path) -> None:
    model, b = with_adapter(build()), batch()
    save_tensors(tmp_path / "fr.safetensors", lora_weights(model, "fr"))
    other = add_lora(build(), LoraConfig(rank=R, alpha=5), "de")
    load_lora(other, "de", load_tensors(tmp_path / "fr.safetensors")[0])
    assert other(b).equal(model(b))


def test_a_whole_adapted_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, other, b = with_adapter(build()), add_lora(build(1), LoraConfig(rank=R, alpha=5), "fr"), batch()
    save_tensors(tmp_path / "model.safetensors", weights_of(model))
    load_weights(other, load_tensors(tmp_path / "model.safetensors")[0], "model.safetensors")
    assert other(b).equal(model(b))


def test_adapters_that_do_not_fit_are_refused_whole() -> None:
    model = with_adapter(build())
    weights = {key: tensor.clone() for key, tensor in lora_weights(model, "fr").items()}
    first = "decoder.blocks.0.attn.q.A"
    for bad, match in (
        ({key: tensor for key, tensor in weights.items() if key != first}, f"lacks `{first}`"),
        ({**weights, "z.A": weights[first]}, "unknown tensor `z.A`"),
        ({key: tensor[:1] + 1 for key, tensor in weights.items()}, r"is \(1, 12\), not \(3, 12\)"),
    ):
        with pytest.raises(CheckpointError, match=match):
            load_lora(model, "fr", bad)
        assert all(tensor.equal(weights[key]) for key, tensor in lora_weights(model, "fr").items())


def test_what_is_not_there_is_named() -> None:
    model = build()
    with pytest.raises(ConfigError, match=r"no layer `attn.w`.*\n?.*did you mean `attn.*`"):
        add_lora(model, LoraConfig(targets=("q", "attn.w")))
    with pytest.raises(ConfigError, match=r"choose one of attn.k, attn.out, attn.q, .*mlp.gate.*unembedding"):
        add_lora(model, LoraConfig(targets=("zzz",)))
    assert list(model.state_dict()) == list(build().state_dict())  # nothing was changed
    assert all(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(ConfigError, match="no adapter `fr`"):
        switch(model, "fr")
    with pytest.raises(ConfigError, match="is not a valid adapter name"):
        add_lora(model, LoraConfig(), "a.b")
    with pytest.raises(ConfigError, match="no linear layer"):
        add_lora(pack(build()), LoraConfig())
    with_adapter(model)
    with pytest.raises(ConfigError, match="already"):
        add_lora(model, LoraConfig(), "fr")
    with pytest.raises(ConfigError, match="no active adapter"):
        merge(switch(model, None))
    merge(switch(model, "fr"))
    for refused in (lambda: switch(model, None), lambda: merge(model), lambda: lora_weights(model, "fr")):
        with pytest.raises(ConfigError, match="unmerge"):
            refused()
    with pytest.raises(ConfigError, match="rank = 0"):
        LoraConfig.parse({"rank": 0}, "[lora]")


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_cached_decoding_is_one_pass(positions: str) -> None:
    model, b = with_adapter(build(positions={"kind": positions}).double(), targets=EVERYWHERE), batch()
    with torch.inference_mode():
        whole, state = model(b), model.start(b.source, b.source_mask)
        steps: list[Tensor] = []
        for t in range(T):
            logits, state = model.step(b.target[:, t : t + 1], state)
            steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_a_layer_that_is_used_twice_is_adapted_once() -> None:
    layer = nn.Linear(5, 5)
    model = nn.ModuleDict({"a": layer, "b": nn.Sequential(layer)})
    add_lora(model, LoraConfig(targets=("a",)))
    assert isinstance(model["a"], LoraLinear)
    assert model["b"][0] is model["a"]  # type: ignore[index]
