"""A walk: every step follows from the one before by its equation, and is what the model computed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import clearformer
from clearformer.cli import app
from clearformer.errors import ConfigError
from clearformer.lens.patches import zero_heads
from clearformer.lens.reading import read
from clearformer.lens.session import Lens
from clearformer.lens.walk import walk
from clearformer.plots import plot_walk
from clearformer.tuning.adapters import add_lora
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.prefix import PrefixConfig, add_prefix

from .small_handles import small
from .streams import KINDS, LANGUAGE_MODELS, TEXT, TRANSLATORS, small_handle

WAY = ["id", "embedding", "Q", "K", "V", "scores", "scaled scores", "pattern", "z", "heads joined", "W_out"]
WAY += ["+ residual", "feed-forward, hidden", "feed-forward", "+ residual", "logits", "probabilities", "word"]
LAYERS = [
    (name, layer) for name in TRANSLATORS for layer in ("encoder.blocks.1", "decoder.blocks.0", "decoder.blocks.2")
]


def follows(values: Any, least: int = 12) -> None:
    """Steps that the model records are within 1e-5 of it, relative to the largest number from 1 on."""
    checked = [step for step in values["steps"] if step["gap"] is not None]
    assert len(checked) >= least
    for step in checked:
        largest = max(abs(value) for row in step["values"] for value in row if value is not None)
        assert step["gap"] <= 1e-5 * max(1.0, largest), step["name"]


def matrix(values: Any, name: str) -> torch.Tensor:
    step = next(step for step in values["steps"] if step["name"] == name)
    return torch.tensor([[float("-inf") if value is None else value for value in row] for row in step["values"]])


@pytest.mark.parametrize(("name", "layer"), [*((name, None) for name in KINDS), *LAYERS])
def test_every_step_is_what_the_model_computes(name: str, layer: str | None) -> None:
    reading = read(small_handle(name), TEXT)
    for head in (0, 3):
        values = walk(reading, layer, head)
        follows(values)
        names = iter(step["name"] for step in values["steps"])
        assert all(step in names for step in WAY), "in this order"
        for step in values["steps"]:
            assert {len(row) for row in step["values"]} == {len(step["columns"])}
            assert len(step["values"]) == len(step["rows"])
        json.dumps(values, allow_nan=False)


@pytest.mark.parametrize("name", [*LANGUAGE_MODELS, "transformer"])
def test_the_steps_of_attention_follow_from_each_other(name: str) -> None:
    values = walk(read(small_handle(name), TEXT), None if name in LANGUAGE_MODELS else "decoder.blocks.0", 1)
    q, k, v = (matrix(values, leaf) for leaf in "QKV")
    torch.testing.assert_close(matrix(values, "scores"), q @ k.T)
    torch.testing.assert_close(matrix(values, "scaled scores"), q @ k.T / q.size(1) ** 0.5)
    pattern = matrix(values, "pattern")
    torch.testing.assert_close(pattern, matrix(values, "masked scores").softmax(-1))
    assert pattern.triu(1).eq(0).all()
    torch.testing.assert_close(matrix(values, "z"), pattern @ v)
    [weighted] = [step["name"] for step in values["steps"] if step["name"].startswith("×")][:1]
    torch.testing.assert_close(matrix(values, weighted).sum(0), matrix(values, "z")[-1])


@pytest.mark.parametrize("name", ["gpt", "transformer"])
def test_heads_that_are_off_write_nothing(name: str) -> None:
    """The walk goes the way of the changed model: the pattern stays, z becomes 0, and so does its part of the join."""
    handle = small_handle(name)
    reading = read(handle, TEXT, None if name == "gpt" else TEXT)
    block = "decoder.blocks.0"
    with Lens(handle.model, put={f"{block}.attn.z": zero_heads(1, 4)}):
        seen, unseen = walk(reading, block, 1), walk(reading, block, 2)
    before = walk(reading, block, 1)
    for values in (seen, unseen):
        follows(values)
        width = matrix(values, "z").size(1)
        joined = matrix(values, "heads joined").unflatten(1, (-1, width))
        assert [head for head in range(joined.size(1)) if joined[:, head].eq(0).all()] == [1, 4]
        assert not matrix(values, "W_out").equal(matrix(before, "W_out"))
    for leaf in ("pattern", "z"):
        torch.testing.assert_close(matrix(seen, leaf), matrix(before, leaf))
    assert matrix(seen, "z, off").eq(0).all()
    assert "z, off" not in {step["name"] for step in [*unseen["steps"], *before["steps"]]}


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_an_image_begins_with_its_patches(handle: Any, sample: Any, pooling: str) -> None:
    model = handle("vit", pooling=pooling)
    pixels = sample(model, 1).pixels[0]
    values = walk(read(model, pixels), "encoder.blocks.1", 2)
    follows(values)
    patches = matrix(values, "patch")  # normalised
    assert patches.shape == (9, 49)
    corner = (pixels[0, 7:14, :7] / 255 - 0.4) / 0.3
    assert patches[3].tolist() == pytest.approx(corner.flatten().tolist(), rel=1e-5)
    weight = model.model.patches.conv.weight.detach().flatten(1).float()
    torch.testing.assert_close(matrix(values, "embedding"), patches @ weight.T, atol=1e-5, rtol=1e-5)
    names = [step["name"] for step in values["steps"]]
    assert ("class token" in names) == (pooling == "class")
    assert names.index("embedding + position") < names.index("Q") < names.index("logits")
    assert len(values["steps"][-1]["rows"]) == 1


def test_a_recording_begins_with_its_frames() -> None:
    model = small("speech-transformer")
    sound = (3000 * np.random.default_rng(0).normal(size=2000)).astype("int16")
    reading = read(model, sound)
    values = walk(reading, None, 5)
    follows(values)
    assert [step["name"] for step in values["steps"]][:2] == ["frames", "convolution 0"]
    assert matrix(values, "frames").size(1) == 7  # mel bands
    assert values["steps"][1]["rows"] == reading.target


def test_a_wrong_step_would_be_noticed() -> None:
    """A layer that changes what it computes, without its weights saying so, leaves a gap."""
    handle: Any = small_handle("gpt")
    handle.model.decoder.blocks[0].mlp.down.register_forward_hook(lambda module, inputs, output: output + 0.001)
    gaps = {step["name"]: step["gap"] for step in walk(read(handle, TEXT))["steps"]}
    assert gaps["feed-forward"] > 5e-4 > 1e-5 > gaps["feed-forward, hidden"]


@pytest.mark.parametrize("name", ["gpt", "transformer"])
def test_adapters_and_prefixes(name: str) -> None:
    handle: Any = small_handle(name)
    add_lora(handle.model, LoraConfig(rank=2, targets=["qkv", "out"]))
    with torch.no_grad():
        for parameter in handle.model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    follows(walk(read(handle, TEXT, *([TEXT] if name == "transformer" else []))))
    handle = small_handle(name)
    add_prefix(handle.model, PrefixConfig(length=3))
    values = walk(read(handle, TEXT, *([TEXT] if name == "transformer" else [])))
    follows(values)
    keys = next(step for step in values["steps"] if step["name"] == "K")
    assert keys["rows"][:3] == ["prefix 0", "prefix 1", "prefix 2"]


@pytest.mark.parametrize("layer", [None, "decoder.blocks.1"])
def test_the_bundled_translator(layer: str | None, tmp_path: Path) -> None:
    reading = read(clearformer.load(), "I am a good boy.")
    values = walk(reading, layer)
    follows(values, least=15)
    words = [row.partition(" → ")[2] for row in values["steps"][-1]["rows"]]
    assert words == reading.outputs
    assert plot_walk(values, tmp_path / "walk.svg").exists()


def test_the_command_prints_every_step(tmp_path: Path) -> None:
    out = tmp_path / "walk.html"
    result = CliRunner().invoke(app, ["lens", "walk", "I am a good boy.", "--head", "1", "--out", str(out)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    for number, text in enumerate(["id", "embedding", "position"], 1):
        assert any(line.startswith(f"{number}. {text}") for line in lines)
    assert "▁boy" in result.output
    assert "head 1" in lines[-1]
    assert out.read_text(encoding="utf-8").count("<svg") == 1


def test_mistakes_are_explained() -> None:
    reading = read(small_handle("gpt"), TEXT)
    with pytest.raises(ConfigError, match=r"has no block `decoder\.blocks\.3`"):
        walk(reading, "decoder.blocks.3")
    with pytest.raises(ConfigError, match="has no head 5"):
        walk(reading, head=5)
