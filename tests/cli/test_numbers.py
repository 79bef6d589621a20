"""Values that are not finite, or not sensible: one sentence says so, and the exit status is not 0."""

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from clearformer.data.labels import label_value
from clearformer.errors import CheckpointError, DataError
from clearformer.handles.scorer import Score
from clearformer.loading.open import open_model
from clearformer.metric import perplexity
from clearformer.tasks.task import Pretrained

CliCall = Callable[..., Any]


def change(run: Path, change: Callable[[torch.Tensor], Any]) -> str:
    """Change one weight of a model, and return its name."""
    path = run / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    weights = load_file(path)
    name = next(name for name, tensor in weights.items() if tensor.dim() == 2)
    change(weights[name])
    save_file(weights, path, metadata)
    return name


@pytest.mark.parametrize("value", [float("nan"), inf, -inf])
@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_weights_that_are_not_finite_are_named(cli: CliCall, copy: Path, corpus: Path, verb: str, value: float) -> None:
    name = change(copy, lambda weight: weight[2].fill_(value))
    inputs = ["--pairs", corpus.with_name("test.tsv")] if verb == "evaluate" else ["the dog sees a tree."]
    result = cli(verb, "--model", copy, *inputs)
    assert (result.code, result.out) == (1, "")
    assert f"model.safetensors: `{name}` has values that are not finite numbers" in result.err
    assert "hint: " in result.err


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_finite_weights_whose_products_are_not_numbers(cli: CliCall, copy: Path, corpus: Path, verb: str) -> None:
    change(copy, lambda weight: weight.fill_(3e38))
    inputs = ["--pairs", corpus.with_name("test.tsv")] if verb == "evaluate" else ["the dog sees a tree."]
    result = cli(verb, "--model", copy, *inputs)
    assert result.code == 1
    assert "computes values that are not numbers" in result.err


def test_an_import_of_such_weights_is_refused_too(copy: Path) -> None:
    change(copy, lambda weight: weight[0].fill_(inf))
    with pytest.raises(CheckpointError, match="not finite numbers"):
        assert isinstance(open_model(copy), Pretrained)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 1.0), (710.0, inf), (1e38, inf), (inf, inf), (-800.0, 0.0)])
def test_a_perplexity_never_overflows(loss: float, expected: float) -> None:
    assert perplexity(loss) == expected
    assert Score("a", -loss, 1).perplexity == expected


@pytest.mark.parametrize("label", ["1e300", "-1e19", "1e38"])
def test_a_label_that_no_loss_can_hold_is_named(label: str) -> None:
    with pytest.raises(DataError, match=f"the label `{label}` is too large.*\nhint: scale the labels"):
        label_value(label)
    assert label_value("-1e18") == -1e18


def test_a_rate_of_1e38_is_refused_by_name(cli: CliCall, corpus: Path, tmp_path: Path) -> None:
    result = cli("train", "--pairs", corpus, "--out", tmp_path / "run", "--lr", "1e38")
    assert result.code == 1
    assert "lr = 1e+38 is too large: it must be at most 1000000" in result.err
    assert not (tmp_path / "run").exists()
