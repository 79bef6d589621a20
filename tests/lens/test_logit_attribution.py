"""Direct logit attribution: the parts add up to the logit, in pre- and post-norm models."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.errors import ConfigError
from clearformer.lens.logit_attribution import BIASES, logit_attribution
from clearformer.lens.patches import zero_heads
from clearformer.lens.reading import read
from clearformer.plots import plot_logit_attribution
from clearformer.tuning.adapters import add_lora
from clearformer.tuning.lora import LoraConfig

from .streams import CLASSES, CLASSIFIERS, KINDS, LANGUAGE_MODELS, TEXT, TRANSLATORS, small_handle, small_tagger

SUMS = [name for name in KINDS if name != "bert"]


@pytest.mark.parametrize("name", SUMS)
def test_the_parts_add_up_to_the_logits(name: str) -> None:
    """In float64 to its rounding: every part of the stream is there, and no part twice."""
    reading = read(small_handle(name, torch.double), TEXT)
    values = logit_attribution(reading)
    assert max(map(abs, values["gap"])) < 1e-12
    contributions = torch.tensor(values["contributions"], dtype=torch.double)
    torch.testing.assert_close(contributions.sum(1), torch.tensor(values["logits"], dtype=torch.double))
    assert contributions.shape == (len(values["outputs"]), len(values["components"]))
    assert values["components"][-1] == BIASES
    assert json.loads(json.dumps(values)) == values


def test_the_parts_add_up_to_the_class_of_a_word() -> None:
    handle = small_tagger()
    values = logit_attribution(read(handle, TEXT), position=3)
    assert values["outputs"] == CLASSES
    assert values["logits"] == pytest.approx(handle.logits([TEXT])[3].tolist(), rel=1e-6)
    assert max(map(abs, values["gap"])) < 1e-12


@pytest.mark.parametrize("name", SUMS)
def test_in_float32_the_gap_is_rounding(name: str) -> None:
    """A few hundred float32 operations lie between the stream and a logit."""
    values = logit_attribution(read(small_handle(name), TEXT))
    for row, gap in zip(values["contributions"], values["gap"]):
        assert abs(gap) < 300 * torch.finfo(torch.float32).eps * sum(map(abs, row))


@pytest.mark.parametrize("name", ["gpt", "llama", "transformer", "t5"])
def test_a_last_head_contributes_what_the_logit_loses_without_it(name: str) -> None:
    """With the norm held fixed, nothing lies between a head of the last layer and the logit but the last MLP.

    Without that MLP the contribution is w · (W_out z_h), computed here from the weights.
    """
    reading = read(small_handle(name, torch.double), TEXT)
    model: Any = reading.model
    stack, i = model.decoder, len(model.decoder.blocks) - 1
    values, layer = logit_attribution(reading), stack.blocks[i].attn
    _, look = reading.look(keep=[f"decoder.blocks.{i}.attn.z", f"decoder.blocks.{i}.resid_post"])
    h, N = 1, layer.d_value
    written = look[f"decoder.blocks.{i}.attn.z"][0, h] @ layer.out.weight[:, h * N : (h + 1) * N].T  # (T, D)
    x = look[f"decoder.blocks.{i}.resid_post"][0]
    if isinstance(stack.norm, torch.nn.LayerNorm):
        written, x = (y - y.mean(-1, keepdim=True) for y in (written, x))
    hidden = written / (x.square().mean(-1, keepdim=True) + stack.norm.eps).sqrt() * stack.norm.weight
    with torch.no_grad():
        logits = model.head(hidden) - model.head(torch.zeros_like(hidden))
        rows = model(reading.batch)[0]
    column = values["components"].index(f"decoder.blocks.{i}.attn.z[{h}]")
    assert reading.ids is not None
    for r, token in enumerate(reading.ids):
        chosen = int(rows[r].argmax()) if token is None else token
        assert values["contributions"][r][column] == pytest.approx(float(logits[r, chosen]), abs=1e-12)


def test_a_head_that_writes_nothing_contributes_nothing() -> None:
    handle: Any = small_handle("transformer")
    layer = handle.model.decoder.blocks[1].cross
    with torch.no_grad():
        layer.out.weight[:, 2 * layer.d_value : 3 * layer.d_value] = 0
    reading = read(handle, TEXT, TEXT)
    values = logit_attribution(reading)
    column = values["components"].index("decoder.blocks.1.cross.z[2]")
    assert all(row[column] == 0 for row in values["contributions"])
    assert values["logits"] == reading_logits(reading, {"decoder.blocks.1.cross.z": zero_heads(2)})


def reading_logits(reading: Any, put: Any) -> list[float]:
    logits, _ = reading.look(put=put)
    return [float(logits[0, r, token]) for r, token in enumerate(reading.ids)]


@pytest.mark.parametrize("name", [*LANGUAGE_MODELS, *TRANSLATORS, *CLASSIFIERS])
def test_components_are_named_by_layer_and_head(name: str) -> None:
    values = logit_attribution(read(small_handle(name), TEXT))
    model: Any = small_handle(name).model
    base = getattr(model, "base", model)
    stack = base.encoder if name == "classifier" else base.decoder
    n_heads = sum(
        layer.n_heads for block in stack.blocks for layer in (block.attn, *([block.cross] if block.has_cross else []))
    )
    assert len(values["components"]) == n_heads + len(stack.blocks) + 3  # MLPs; embedding, positions, biases


def test_lora_is_a_part_of_its_heads() -> None:
    handle: Any = small_handle("gpt", torch.double)
    add_lora(handle.model, LoraConfig(rank=2, targets=["out"]))
    with torch.no_grad():
        for parameter in handle.model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    values = logit_attribution(read(handle, TEXT))
    assert max(map(abs, values["gap"])) < 1e-12


def test_the_bundled_translator(tmp_path: Path) -> None:
    reading = read(clearformer.load(), "I am a good boy.")
    values = logit_attribution(reading)
    with torch.no_grad():
        rows = reading.model(reading.batch)[0]
    assert reading.ids is not None
    expected = [float(rows[r, token]) for r, token in enumerate(reading.ids) if token is not None]
    assert values["logits"] == pytest.approx(expected, rel=1e-6)
    assert max(map(abs, values["gap"])) < 1e-4
    assert plot_logit_attribution(values, tmp_path / "dla.svg").exists()


def test_one_position_and_a_head_that_is_not_linear() -> None:
    reading = read(small_handle("gpt"), TEXT)
    assert logit_attribution(reading, 2)["contributions"] == [logit_attribution(reading)["contributions"][2]]
    with pytest.raises(ConfigError, match="a head that is not linear"):
        logit_attribution(read(small_handle("bert"), TEXT))
