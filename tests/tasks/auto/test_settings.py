"""Settings on top of zero configuration: a size is checked against the sizes that zero configuration chooses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer.errors import ConfigError
from clearformer.recipe import Recipe
from clearformer.tasks.auto.images import plan_images
from clearformer.tasks.auto.labels import plan_labels
from clearformer.tasks.task import Request


def plan(choose: Any, path: Path, *settings: str) -> Any:
    return choose(Request({"train": {"path": path}}, None, list(settings), "cpu", Recipe.parse)).recipe.model


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.tsv"
    path.write_text("".join(f"film {i}\t{'good' if i % 2 else 'bad'}\n" for i in range(211)))
    return path


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    path = tmp_path / "squares.npz"
    draw = np.random.default_rng(0)
    np.savez(path, images=draw.integers(0, 255, (211, 13, 13), np.uint8), labels=np.arange(211) % 3)
    return path


def test_a_width_need_not_fit_the_heads_of_a_larger_bert(reviews: Path) -> None:
    base = plan(plan_labels, reviews, "model.base.d_model=68").base
    assert (base.d_model, base.n_heads) == (68, 4)
    with pytest.raises(ConfigError, match="d_model = 64 must be a multiple of n_heads = 3"):
        plan(plan_labels, reviews, "model.base.n_heads=3")


def test_stages_are_set_one_list_at_a_time(squares: Path) -> None:
    model = plan(plan_images, squares, "model.depths=[1, 1, 1]")
    assert (model.depths, model.widths) == ((1, 1, 1), (16, 32, 64))


@pytest.mark.parametrize(("setting", "kind"), [("model.kind=vit", "vit"), ("model.preset=vit-small-28", "vit")])
def test_another_network_has_its_own_sizes(squares: Path, setting: str, kind: str) -> None:
    assert plan(plan_images, squares, setting).kind == kind


def test_a_preset_of_a_residual_network_keeps_its_sizes(squares: Path) -> None:
    assert plan(plan_images, squares, "model.preset=resnet18").widths == (64, 128, 256, 512)
