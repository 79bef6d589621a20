from itertools import product

import pytest
import torch
from torch import Tensor

from clearformer.layers.masks import Ancestors, Causal, Documents, Mask, Padding, PrefixLM, Window

CPU = torch.device("cpu")
KEYS = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
TREE = torch.tensor([[[1, 0, 1], [0, 1, 0], [1, 1, 1]], [[0, 0, 1], [1, 0, 0], [1, 0, 1]]]).bool()

LOWER = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
WORKED: dict[str, tuple[Mask, list[list[list[int]]]]] = {
    "causal": (Causal(), [LOWER]),
    "padding": (Padding(KEYS), [[[1, 1, 0]] * 3, [[1, 1, 1]] * 3]),
    "window": (Window(2), [[[1, 1, 0], [1, 1, 1], [0, 1, 1]]]),
    "documents": (
        Documents(torch.tensor([[4, 4, 7], [5, 8, 5]])),
        [[[1, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 0, 1], [0, 1, 0], [1, 0, 1]]],
    ),
    "prefix": (PrefixLM(torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()), [[[1, 1, 0], [1, 1, 0], [1, 1, 1]], LOWER]),
    "ancestors": (Ancestors(TREE), TREE.int().tolist()),
    "causal and padding": (Causal() & Padding(KEYS), [[[1, 0, 0], [1, 1, 0], [1, 1, 0]], LOWER]),
    "three rules": (
        Causal() & Window(2) & Padding(KEYS),
        [[[1, 0, 0], [1, 1, 0], [0, 1, 0]], [[1, 0, 0], [1, 1, 0], [0, 1, 1]]],
    ),
    "a tree and padding": (
        Ancestors(TREE) & Padding(KEYS),
        [[[1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 0, 1], [1, 0, 0], [1, 0, 1]]],
    ),
}


@pytest.mark.parametrize("name", WORKED)
def test_true_means_may_look(name: str) -> None:
    mask, expected = WORKED[name]
    dense = mask.dense(3, 3, CPU)
    assert dense.dtype == torch.bool
    assert dense.int().tolist() == [[row] for row in expected]  # (B, 1, T, S); B = 1 when no row differs


@pytest.mark.parametrize("name", WORKED)
def test_a_rule_is_a_predicate_on_single_indices_too(name: str) -> None:
    mask = WORKED[name][0]
    dense = mask.dense(3, 3, CPU)
    for b, t, s in product(range(dense.size(0)), range(3), range(3)):
        assert mask.allow(torch.tensor(b), torch.tensor(t), torch.tensor(s)) == dense[b, 0, t, s]


def test_fewer_queries_than_keys() -> None:
    assert Padding(KEYS).dense(2, 3, CPU).shape == (2, 1, 2, 3)
    assert Causal().dense(2, 3, CPU).int().tolist() == [[[[1, 0, 0], [1, 1, 0]]]]


def test_nothing_to_add_adds_nothing() -> None:
    rule = Causal()
    assert (rule & None) is rule


def test_only_causal_alone_is_only_causal() -> None:
    assert Causal().is_only_causal
    assert not (Causal() & Padding(KEYS)).is_only_causal
    assert not Window(3).is_only_causal


@pytest.mark.parametrize("mask", [Causal(), Window(2), Padding(KEYS.to("meta")) & Causal(), Ancestors(TREE.to("meta"))])
def test_a_mask_is_made_where_the_queries_are(mask: Mask) -> None:
    """Also by rules that hold no tensor, which would tell where."""
    assert mask.dense(3, 3, torch.device("meta")).device.type == "meta"


def test_tensors_of_all_rules_are_known() -> None:
    first = torch.tensor([[1, 0, 0], [1, 1, 0]]).bool()
    held: list[Tensor] = (Causal() & PrefixLM(first) & Padding(KEYS)).tensors()
    assert [tensor is own for tensor, own in zip(held, (first, KEYS))] == [True, True]
