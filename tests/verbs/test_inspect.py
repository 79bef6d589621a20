from pathlib import Path

import pytest
import torch

import clearformer
from clearformer.errors import ClearformerError
from clearformer.models.build import build_model, model_config, presets
from clearformer.verbs.inspect import inspect


def test_a_layer_counted_by_hand() -> None:
    """transformer-tiny, D = 128, F = 256, H = 4, on a sentence pair of seven tokens a side."""
    layers = {layer["name"]: layer for layer in inspect("transformer-tiny", 7)["layers"]}
    up = layers["encoder.blocks.0.mlp.up"]
    assert (up["output"], up["parameters"], up["multiplications"]) == ([1, 7, 256], 128 * 256 + 256, 7 * 128 * 256)
    core = layers["decoder.blocks.3.cross.core"]
    assert (core["output"], core["parameters"], core["multiplications"]) == ([1, 4, 7, 32], 0, 4 * 7 * 7 * (32 + 32))
    assert layers["decoder.norm"]["multiplications"] == 0
    cross = layers["decoder.blocks.3.cross.qkv"]  # though its rows are used apart, for x and for memory
    assert (cross["output"], cross["parameters"]) == ([1, 7, 384], 128 * 384 + 384)
    assert cross["multiplications"] == 7 * 128 * 384


def test_shared_weights_are_counted_once_and_multiplied_each_time() -> None:
    layers = {layer["name"]: layer for layer in inspect("transformer-tiny", 7)["layers"]}
    assert layers["target_embedding"]["parameters"] == 37000 * 128
    head = layers["unembedding"]
    assert (head["output"], head["parameters"], head["multiplications"]) == ([1, 7, 37000], 0, 7 * 128 * 37000)


@pytest.mark.parametrize("cell", ["gru", "gru-simple"])
def test_a_recurrence_multiplies_every_matrix_at_every_time(cell: str, tmp_path: Path) -> None:
    """Two layers of width 200, G gates: G·200·200 twice a layer; torch's cells have two biases, the others one."""
    (tmp_path / "recipe.toml").write_text(
        f'[data]\ntrain.path = "a.txt"\n[model]\npreset = "lstm-ptb-small"\ncell = "{cell}"\n', encoding="utf-8"
    )
    found = inspect(tmp_path, 7)
    (row,) = [layer for layer in found["layers"] if layer["name"] == "layers.weights"]
    gates, biases = {"gru": (3, 2), "gru-simple": (2, 1)}[cell]
    assert (row["output"], row["multiplications"]) == ([1, 7, 200], 7 * 2 * 2 * gates * 200 * 200)
    assert row["parameters"] == 2 * gates * 200 * (200 + 200 + biases)
    assert sum(layer["parameters"] for layer in found["layers"]) == found["parameters"]


def test_the_papers_base_model_has_its_published_size() -> None:
    """Vaswani et al. 2017, table 3: 65 million with 37,000 words shared by both languages."""
    assert inspect("transformer-base")["parameters"] == pytest.approx(65e6, rel=0.05)
    assert inspect("transformer-big")["parameters"] == pytest.approx(213e6, rel=0.05)


@pytest.mark.parametrize("name", ["transformer", *(name for name in presets() if name != "resnet1202")])
def test_layers_add_up_to_the_whole(name: str) -> None:
    result = inspect(name, None if hasattr(model_config(name), "size") else 3)
    with torch.device("meta"):
        expected = sum(p.numel() for p in build_model(model_config(name)).parameters())
    assert sum(layer["parameters"] for layer in result["layers"]) == result["parameters"] == expected
    assert sum(layer["multiplications"] for layer in result["layers"]) == result["multiplications"]


def test_a_preset_may_be_named_with_other_hyphens() -> None:
    found = inspect("vit-b16")
    assert found.pop("name") == "vit-b16"
    assert found == {key: value for key, value in inspect("vit-b-16").items() if key != "name"}


def test_attention_grows_with_the_square_of_the_length() -> None:
    def cost(length: int) -> int:
        layers = inspect("transformer-tiny", length)["layers"]
        return sum(layer["multiplications"] for layer in layers if layer["name"].endswith(".core"))

    assert cost(15) == 9 * cost(5)


def test_nothing_by_that_name(tmp_path: Path) -> None:
    with pytest.raises(ClearformerError, match=r"(?s)preset or architecture `transformer-bas`.*`transformer-base`"):
        clearformer.inspect("transformer-bas")
    with pytest.raises(ClearformerError, match=r"no recipe\.toml"):
        clearformer.inspect(tmp_path)
