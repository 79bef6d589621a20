"""The logit lens: the last row is the model's output; the rows below are the head on the residual stream."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.errors import ConfigError
from clearformer.lens.logit_lens import logit_lens, stream, streamed_logits
from clearformer.lens.outputs import by_row
from clearformer.lens.reading import read
from clearformer.plots import plot_logit_lens

from .conftest import SMALL as IMAGES
from .streams import KINDS, TEXT, small_handle


@pytest.mark.parametrize("name", KINDS)
def test_the_last_layer_is_the_output_of_the_model(name: str) -> None:
    reading = read(small_handle(name), TEXT)
    with torch.no_grad():
        output = reading.model(reading.batch)
    layers = streamed_logits(reading, stream(reading))
    assert layers[-1].equal(by_row(output))
    assert not any(rows.allclose(layers[-1]) for rows in layers[:-1])


@pytest.mark.parametrize("name", ["gpt", "llama", "transformer", "t5", "bert"])
@torch.no_grad()
def test_every_layer_is_the_head_on_the_normalised_stream(name: str) -> None:
    """By the equation: final norm, then the head, on the activation that the lens recorded."""
    reading = read(small_handle(name), TEXT)
    names = stream(reading)
    _, look = reading.look(keep=names)
    stack: Any = reading.model.get_submodule(names[0].partition(".")[0])
    for activation, rows in zip(names, streamed_logits(reading, names)):
        x = look[activation]
        assert rows.equal(reading.model.head(x if stack.norm is None else stack.norm(x))[0])


@pytest.mark.parametrize("name", KINDS)
def test_values(name: str) -> None:
    reading = read(small_handle(name), TEXT)
    values = logit_lens(reading, top=2)
    with torch.no_grad():
        rows = by_row(reading.model(reading.batch)).softmax(-1)
    assert values["layers"][0] == "embedding"
    L, R = len(values["layers"]), len(rows)
    assert torch.tensor(values["probabilities"]).shape == (L, R, 2)
    assert len(values["positions"]) == len(values["outputs"]) == R
    torch.testing.assert_close(torch.tensor(values["probabilities"][-1]), rows.topk(2).values)
    assert reading.spell is not None
    assert [best[0] for best in values["tokens"][-1]] == reading.spell(rows.argmax(-1).tolist())
    for r, settled in enumerate(values["settled"]):
        best = [values["tokens"][layer][r][0] for layer in range(L)]
        assert len(set(best[settled:])) == 1
        assert settled == 0 or best[settled - 1] != best[settled]
    assert json.loads(json.dumps(values)) == values


def test_the_bundled_translator_settles_on_its_translation(tmp_path: Path) -> None:
    reading = read(clearformer.load(), "I am a good boy.")
    values = logit_lens(reading)
    assert [best[0] for best in values["tokens"][-1]] == values["outputs"]
    assert values["layers"] == ["embedding", *(f"decoder.blocks.{i}" for i in range(3))]
    assert [best[0] for best in values["tokens"][0]] != values["outputs"]
    content = plot_logit_lens(values, tmp_path / "lens.png").read_bytes()
    assert content.startswith(b"\x89PNG")


def test_a_vision_transformer_has_one_row(handle: Any, tmp_path: Path) -> None:
    from PIL import Image

    size = IMAGES["vit"]["size"]
    Image.new("L", (size, size), 77).save(tmp_path / "x.png")
    values = logit_lens(read(handle("vit"), str(tmp_path / "x.png")))
    assert values["positions"] == ["output"]
    assert len(values["layers"]) == 3
    with pytest.raises(ConfigError, match="no residual stream"):
        logit_lens(read(handle("resnet"), str(tmp_path / "x.png")))
