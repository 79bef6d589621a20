"""Parameters without memory get the values that they would have had, whatever their initialisation does."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from clearformer.checkpoint import map_tensors, save_tensors, weights_of
from clearformer.models import MODELS
from clearformer.models.build import build_deferred, build_mapped, build_model
from clearformer.models.deferred import Deferred
from clearformer.models.gpt import GPTConfig
from clearformer.training.precision import built_in


def drawn_twice() -> nn.Module:
    layer = nn.Linear(5, 7)
    nn.init.xavier_uniform_(layer.weight)
    return layer


def scaled_in_part() -> nn.Module:
    layer = nn.Linear(5, 7)
    with torch.no_grad():
        layer.weight[:3] *= 0.25
        layer.weight[1].fill_(2)
    return layer


def orthogonal() -> nn.Module:
    layer = nn.Linear(5, 7)
    nn.init.orthogonal_(layer.weight)
    return layer


def copied() -> nn.Module:
    """A copy of another parameter, which changes afterwards, and of a tensor, which does too."""
    model = nn.ModuleList([nn.Linear(5, 7), nn.Linear(5, 7)])
    table = torch.arange(7.0)
    with torch.no_grad():
        model[0].weight.copy_(model[1].weight)
        model[0].bias.copy_(table)
        model[1].weight.zero_()
    table += 1
    return model


def made_of_others() -> nn.Module:
    """Parameters that are made of random tensors, and a table that is computed in memory of its own."""
    model = nn.Module()
    weight = torch.empty(7, 5)
    nn.init.normal_(weight)
    model.weight = nn.Parameter(weight * 3 + torch.randn_like(weight))
    table = torch.empty(4, 2)
    table[:, 0], table[:, 1] = torch.arange(4.0), -torch.arange(4.0)
    model.register_buffer("table", table)
    model.fixed = nn.Parameter(torch.linspace(0, 1, 3), requires_grad=False)
    return model


def recurrent() -> nn.Module:
    return nn.LSTM(5, 7, num_layers=2, bidirectional=True)


def tied() -> nn.Module:
    model = nn.ModuleList([nn.Embedding(7, 5, padding_idx=2), nn.Linear(5, 7)])
    model[1].weight = model[0].weight
    return model


BUILDERS = [drawn_twice, scaled_in_part, orthogonal, copied, made_of_others, recurrent, tied]


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_values_are_those_of_a_plain_build(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    plain, after = build(), torch.rand(3)
    torch.manual_seed(0)
    with Deferred() as later:
        model = build()
    assert torch.rand(3).equal(after)
    before = torch.get_rng_state()
    later.fill(model, model)
    assert torch.get_rng_state().equal(before)
    one, two = tensors(plain), tensors(model)
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].equal(two[name]), name
        assert one[name].stride() == two[name].stride()
        assert one[name].requires_grad == two[name].requires_grad
    assert len({id(t) for t in one.values()}) == len({id(t) for t in two.values()})


def test_parts_are_filled_one_by_one() -> None:
    with Deferred() as later:
        model = nn.ModuleList([nn.Linear(5, 7), nn.Linear(7, 5)])
    assert all(p.is_meta for p in model.parameters())
    later.fill(model, model[1])
    assert [p.is_meta for p in model.parameters()] == [True, True, False, False]


def test_a_tied_weight_is_filled_wherever_it_is_used() -> None:
    torch.manual_seed(0)
    with Deferred() as later:
        model = tied()
    later.fill(model, model[1])
    assert model[0].weight is model[1].weight
    assert not model[0].weight.is_meta


def test_only_the_last_draw_is_repeated() -> None:
    with Deferred() as later:
        layer = drawn_twice()
    assert isinstance(layer, nn.Linear)
    draws = [note for note in later.notes if note.function is torch.ops.aten.uniform_.default]
    assert len(draws) == 3  # weight, bias, and the weight again
    later.notes.remove(draws[0])
    later.fill(layer, layer)  # without the first
    assert not layer.weight.is_meta


class Config(BaseModel):
    kind: str


class Curious(nn.Linear):
    def __init__(self, config: Config) -> None:
        super().__init__(5, 7)
        self.first = self.weight[0, 0].item()


class Rejecting(nn.Linear):
    """Draws again what is too large, so that the number of draws depends on the values."""

    def __init__(self, config: Config) -> None:
        super().__init__(5, 7)
        nn.init.trunc_normal_(self.weight)


@pytest.mark.parametrize("network", [Curious, Rejecting])
def test_a_network_that_looks_at_its_values_is_built_at_once(
    network: type[nn.Linear], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(kind="looking")
    with pytest.raises(RuntimeError), Deferred():
        network(config)
    monkeypatch.setitem(MODELS.added, "looking", network)
    torch.manual_seed(0)
    plain = network(config)
    torch.manual_seed(0)
    model, later = build_deferred(config)
    later.fill(model, model)
    assert all(one.equal(two) for one, two in zip(plain.parameters(), model.parameters()))


def is_in(file: Path, address: int) -> bool:
    """Whether an address of this process is in a mapped file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(file) in line]
    ranges = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    return any(start <= address < stop for start, stop in ranges)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is mapped")
def test_a_mapped_network_keeps_its_weights_in_the_file(tmp_path: Path) -> None:
    """Tied weights and tables too. Another dtype needs a copy. The file may be replaced."""
    config = GPTConfig(vocab=23, n_layers=2, d_model=20, d_ff=12, n_heads=2, max_length=11)
    torch.manual_seed(0)
    plain, path = build_model(config), tmp_path / "model.safetensors"
    save_tensors(path, weights_of(plain))
    weights, _ = map_tensors(path)
    before = torch.get_rng_state()
    model = build_mapped(config, weights, "model")
    assert torch.get_rng_state().equal(before)
    assert all(is_in(path, parameter.data_ptr()) for parameter in model.parameters())
    assert model.unembedding.weight is model.embedding.weight
    assert all(parameter.requires_grad for parameter in model.parameters())
    with built_in("float64"):
        exact = build_mapped(config, weights, "model")
    assert not any(is_in(path, parameter.data_ptr()) for parameter in exact.parameters())
    save_tensors(path, {name: tensor + 1 for name, tensor in weights.items()})
    one, two, three = tensors(plain), tensors(model), tensors(exact)
    assert one.keys() == two.keys() == three.keys()
    assert all(one[name].equal(two[name]) for name in one)
    assert all(parameter.double().equal(three[name]) for name, parameter in plain.named_parameters())
