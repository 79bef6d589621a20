"""What a folder says of itself without its weights: the recipe, and the names of the classes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from clearformer.checkpoint import save_tensors
from clearformer.errors import CheckpointError
from clearformer.loading.folder import read_classes, read_foreign, read_recipe
from clearformer.verbs.inspect import inspect

Hub = Callable[..., Path]


@pytest.mark.parametrize("kind", ["marian", "t5", "gpt2", "llama", "bert"])
def test_the_recipe_of_a_foreign_folder_takes_no_weights(hub: Hub, headers_only: Callable[[], None], kind: str) -> None:
    """The one that opening the model gives; `inspect` counts the parameters of the network that this builds."""
    recipe, weights, _ = read_foreign(folder := hub(kind))
    headers_only()
    assert read_recipe(folder) == recipe
    assert inspect(folder, 5)["parameters"] == sum(tensor.numel() for tensor in weights.values())


def test_the_recipe_of_pictures_takes_no_weights(tmp_path: Path, headers_only: Callable[[], None]) -> None:
    sizes = {"image_size": 15, "patch_size": 5, "hidden_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(2)
    transformers.utils.logging.disable_progress_bar()
    config = transformers.ViTConfig(**sizes, intermediate_size=11, num_labels=3)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    recipe, weights, _ = read_foreign(tmp_path)
    headers_only()
    assert read_recipe(tmp_path) == recipe
    assert recipe.image is not None
    assert inspect(tmp_path)["parameters"] == sum(tensor.numel() for tensor in weights.values())


def test_classes_are_those_of_the_header(tmp_path: Path, headers_only: Callable[[], None]) -> None:
    save_tensors(tmp_path / "model.safetensors", {"a": torch.zeros(3)}, {"classes": ["dog", "cat"]})
    (tmp_path / "classes.json").write_text(json.dumps(["dog", "cat"]))
    headers_only()
    assert read_classes(tmp_path) == ["dog", "cat"]
    (tmp_path / "classes.json").write_text(json.dumps(["cat", "dog"]))
    with pytest.raises(CheckpointError, match=r"classes\.json does not match the weights"):
        read_classes(tmp_path)
