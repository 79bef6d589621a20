"""Rollout and flow of text models: by hand, against networkx, and through the command's function."""

from typing import Any

import networkx
import pytest
import torch
from torch import Tensor

import clearformer
from clearformer.errors import ConfigError, DataError
from clearformer.lens.flow import flow_of_text, max_flow, rollout_of_text, self_attention
from clearformer.lens.reading import Reading, read
from clearformer.lens.rollout import mixed

from ..models.test_contract import batch_for, build

TEXT = "Where is the station?"


def reading_of(name: str) -> Reading:
    model = build(name).eval()
    batch: Any = batch_for(model)
    one = batch.map(lambda tensor: tensor[:1])
    names = [f"t{i}" for i in range(one.tokens.size(1))]
    return Reading(name, model, one, model, names, names)


def by_networkx(capacities: list[Tensor], i: int, j: int) -> float:
    graph = networkx.DiGraph()
    for layer, matrix in enumerate(capacities, 1):
        for t in range(len(matrix)):
            for s in range(len(matrix)):
                graph.add_edge((layer, t), (layer - 1, s), capacity=float(matrix[t, s]))
    return float(networkx.maximum_flow_value(graph, (len(capacities), i), (0, j)))


def test_a_flow_by_hand() -> None:
    """From position 0 to input 1: ½ + ½ leave it, but only ¼ + ¼ arrive, as each edge to input 1 carries ¼."""
    above, below = [[0.5, 0.5], [0.0, 1.0]], [[0.75, 0.25], [0.75, 0.25]]
    assert max_flow([below, above], 0, 1) == 0.5
    assert max_flow([below, above], 1, 1) == 0.25  # a single path
    assert max_flow([below, above], 1, 0) == 0.75
    assert max_flow([[[1.0, 0.0], [0.5, 0.5]]], 0, 1) == 0.0  # no path


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("sharpness", [1, 7])
def test_flows_are_those_of_networkx(is_causal: bool, sharpness: int) -> None:
    torch.manual_seed(0)
    scores = sharpness * torch.randn(3, 1, 2, 7, 7, dtype=torch.float64)
    if is_causal:
        scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), float("-inf"))
    capacities = [mixed(pattern)[0] for pattern in scores.softmax(-1)]
    lists = [matrix.tolist() for matrix in capacities]
    for i in range(7):
        for j in range(7):
            assert abs(max_flow(lists, i, j) - by_networkx(capacities, i, j)) < 1e-12


def test_a_layer_alone_is_its_capacities() -> None:
    torch.manual_seed(0)
    matrix = mixed(torch.randn(1, 3, 5, 5, dtype=torch.float64).softmax(-1))[0]
    flows = [[max_flow([matrix.tolist()], i, j) for j in range(5)] for i in range(5)]
    torch.testing.assert_close(torch.tensor(flows, dtype=torch.float64), matrix)


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_a_stack_is_followed_from_its_last_layer_to_its_first(name: str) -> None:
    reading = reading_of(name)
    _, patterns = self_attention(reading)
    product = torch.eye(len(reading.target), dtype=torch.float64)
    for pattern in patterns:
        product = (product + pattern[0].mean(0) @ product) / 2
    [panel] = rollout_of_text(reading)["panels"]
    values = torch.tensor(panel["values"], dtype=torch.float64)
    torch.testing.assert_close(values, product)
    torch.testing.assert_close(values.sum(1), torch.ones(len(values), dtype=torch.float64), atol=1e-6, rtol=0)
    assert values.triu(1).eq(0).all() == (name == "gpt")  # causal
    [flows] = flow_of_text(reading)["panels"]
    assert (
        torch.tensor(flows["values"]).double() >= values - 1e-6
    ).all()  # one unit leaves by rollout; flow can do more
    [row] = flow_of_text(reading, -1)["panels"]
    assert (row["rows"], row["values"]) == (reading.target[-1:], flows["values"][-1:])


def test_the_encoder_of_a_translator() -> None:
    reading = read(clearformer.load(), TEXT, "Où est la gare ?")
    for compute in (rollout_of_text, flow_of_text):
        [panel] = compute(reading)["panels"]
        assert panel["rows"] == panel["columns"] == reading.source


def test_mistakes_are_explained() -> None:
    reading = reading_of("gpt")
    with pytest.raises(DataError, match="has no position 5") as caught:
        flow_of_text(reading, 5)
    assert "from 0 to 4" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="birnn has no self-attention"):
        rollout_of_text(reading_of("birnn"))
    translator = clearformer.load()
    with pytest.raises(DataError, match="flow is computed for at most 24"):
        flow_of_text(read(translator, "the station " * 20, "la gare"))
