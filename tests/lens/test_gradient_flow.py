"""Gradient norms on a text, against torch's own backward pass, for every kind of model."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import clearformer
from clearformer.errors import ConfigError, DataError
from clearformer.layers.int8 import quantize
from clearformer.layers.linear import PackedLinear, pack
from clearformer.layers.weight_names import place_of
from clearformer.lens.losses import differentiable
from clearformer.lens.reading import read
from clearformer.verbs.lens import view

from .small_handles import TEXT, small

KINDS = (
    "transformer",
    "t5",
    "seq2seq",
    "gpt",
    "rnn-lm",
    "bert",
    "textcnn",
    "birnn-of-classifier",
    "bert-of-classifier",
)


@pytest.mark.parametrize("kind", KINDS)
def test_norms_of_every_kind_of_model(kind: str) -> None:
    model = small(kind)
    values = view("gradient-flow", model, TEXT)
    json.dumps(values)
    assert all(parameter.grad is None for parameter in model.model.parameters())
    norms = {row["name"]: row["norm"] for row in values["weights"]}
    total = sum(norm**2 for norm in norms.values())
    assert total == pytest.approx(sum(norm**2 for norm in values["layers"].values()))
    assert total > 0
    used = {name for name, _ in model.model.named_parameters()} - norms.keys()
    assert all("next_sentence" in name or "pooler" in name or "segments" in name for name in used)


def test_a_language_model_by_hand() -> None:
    model = small("gpt")
    values = view("gradient-flow", model, TEXT)
    ids = torch.tensor([model.tokenizer.encode([TEXT])[0]])
    reading = read(model, TEXT)
    loss = F.cross_entropy(model.model(reading.batch)[0, :-1], ids[0, 1:])
    loss.backward()
    assert values["loss"] == pytest.approx(loss.item())
    assert values["loss_of"] == "next token"
    for row in values["weights"]:
        weight = model.model.get_parameter(row["name"])
        assert row["norm"] == pytest.approx(float(weight.grad.norm()), rel=1e-5)
        if row["relative"] is not None:
            assert row["relative"] == pytest.approx(float(weight.grad.norm() / weight.detach().norm()), rel=1e-5)


def test_a_packed_model_has_the_same_gradients() -> None:
    """`load` packs the weights for inference; their tiles carry no gradient."""
    model = small("transformer")
    expected = view("gradient-flow", model, TEXT, target="a queen saw")
    pack(model.model)
    packed = [module for module in model.model.modules() if type(module) is PackedLinear]
    assert packed
    result = view("gradient-flow", model, TEXT, target="a queen saw")
    for one, two in zip(expected["weights"], result["weights"], strict=True):
        assert one["name"] == two["name"]
        assert two["norm"] == pytest.approx(one["norm"], rel=1e-4, abs=1e-9)
    assert all(type(module) is PackedLinear for module in packed)


def test_frozen_weights_stay_frozen() -> None:
    model = small("bert-of-classifier")
    model.model.base.requires_grad_(False)
    assert view("gradient-flow", model, TEXT)["layers"]["base.encoder.blocks.0"] > 0
    assert not any(parameter.requires_grad for parameter in model.model.base.parameters())


def test_masked_models_predict_masked_tokens() -> None:
    model = small("bert")
    values = view("gradient-flow", model, TEXT)
    ids = model.tokenizer.encode([TEXT])[0]
    batch: Any = read(model, TEXT).batch
    place = batch.tokens[0].tolist().index(ids[0])  # 5 words: only the first is masked
    masked = batch.tokens.clone()
    masked[0, place] = model.mask_id
    logits = model.model(type(batch)(masked, segments=batch.segments))
    loss = F.cross_entropy(logits[0, [place]], torch.tensor([ids[0]]))
    assert values["loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_recordings_and_images(tmp_path: Path, handle: Any) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.random.default_rng(0).integers(-999, 999, 1601, "int16").tobytes())
    for kind in ("speech-rnn", "speech-transformer"):
        assert view("gradient-flow", small(kind), str(tmp_path / "a.wav"))["loss_of"] == "the prediction"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 31), "uint8")).save(tmp_path / "a.png")
    for kind in ("resnet", "vit", "autoencoder"):
        values = view("gradient-flow", handle(kind), str(tmp_path / "a.png"))
        assert sum(values["layers"].values()) > 0


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("encoder.blocks.3.attn.out.weight", ("encoder.blocks.3", "attn.out")),
        ("encoder.blocks.3.attn.out.bias", ("encoder.blocks.3", "attn.out.bias")),
        ("base.layers.weights.weight_hh_l1_reverse", ("base.layers.l1_reverse", "weight_hh")),
        ("stages.0.1.path.0.conv.weight", ("stages.0.1", "path.0.conv")),
        ("embedding.weight", ("embedding", "weight")),
    ],
)
def test_names_of_layers(name: str, place: tuple[str, str]) -> None:
    assert place_of(name) == place


def test_the_bundled_translator(tmp_path: Path) -> None:
    look = clearformer.load().lens("Where is the station?", "Où est la gare ?")
    values = look.view("gradient-flow")
    assert next(iter(values["layers"])).endswith("embedding")
    assert 0 < values["loss"] < 5
    for name, draw in values.figures.items():
        assert draw(tmp_path / f"{name}.png").stat().st_size > 5000


def test_mistakes_are_explained() -> None:
    with pytest.raises(DataError, match="a single token"):
        view("gradient-flow", small("gpt"), "king")
    model = small("gpt")
    quantize(model.model)
    with pytest.raises(ConfigError, match="int8 weights"), differentiable(model.model):
        pass
