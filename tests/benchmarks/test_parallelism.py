"""Chains of an autograd graph by hand, and which layers wait for the word before."""

from importlib import import_module
from typing import Any

import pytest
import torch


@pytest.fixture
def parallelism() -> Any:
    return import_module("parallelism")


def test_chains_by_hand(parallelism: Any) -> None:
    """x → exp → · → + reads x again, so the short way from the sum to x is one node, and the leaf."""
    x = torch.ones(2, requires_grad=True)
    y = x + (x.exp() * 2)
    assert parallelism.longest_chain(y.grad_fn) == 4, "the leaf, exp, product, sum"
    assert parallelism.shortest_chain(y.grad_fn, x) == 2


def test_only_the_lstm_waits_for_the_word_before(parallelism: Any) -> None:
    layers = {
        "attention": lambda: parallelism.attention(parallelism.PlainCore(), 4, 2),
        "LSTM": lambda: parallelism.lstm(parallelism.Unrolled, 4),
        "convolution": lambda: parallelism.convolution(4),
    }
    looks = {name: [parallelism.look(make, T) for T in (4, 8)] for name, make in layers.items()}
    sequential = {name: [row[0] for row in rows] for name, rows in looks.items()}
    path = {name: [row[1] for row in rows] for name, rows in looks.items()}
    assert sequential["attention"][0] == sequential["attention"][1]
    assert sequential["convolution"][0] == sequential["convolution"][1]
    assert sequential["LSTM"][1] > sequential["LSTM"][0] + 4, "at least one operation more for each of four words"
    assert path["attention"][0] == path["attention"][1]
    assert path["LSTM"][1] > path["LSTM"][0]
    assert path["convolution"][1] > path["convolution"][0], "more layers until the first word is seen"
