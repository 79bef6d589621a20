"""Histograms of weights and activations on a text, and of a run over its steps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clearformer.errors import ConfigError, DataError
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
def test_every_weight_and_every_layer_is_counted(kind: str) -> None:
    model = small(kind)
    values = view("histograms", model, TEXT)
    json.dumps(values)
    n = sum(parameter.numel() for parameter in model.model.parameters())
    assert sum(sum(layer["counts"]) + layer["outside"] for layer in values["weights"]) == n
    assert values["activations"]


def test_activations_by_hand() -> None:
    model = small("gpt")
    values = view("histograms", model, TEXT)
    assert [one["name"] for one in values["activations"]] == [f"decoder.blocks.{i}.resid_post" for i in range(3)]
    _, look = read(model, TEXT).look(keep=["decoder.blocks.1.resid_post"])
    x = look["decoder.blocks.1.resid_post"]
    one = values["activations"][1]
    assert (one["min"], one["max"]) == (x.min().item(), x.max().item())
    assert (one["mean"], one["std"]) == pytest.approx((x.mean().item(), x.std(correction=0).item()), rel=1e-5)
    assert sum(one["counts"]) + one["outside"] == 5 * 14
    chosen = view("histograms", model, TEXT, layer="decoder.blocks.1")
    assert chosen["activations"] == [one]
    assert [layer["name"] for layer in chosen["weights"]] == ["decoder.blocks.1"]


def test_images(tmp_path: Path, handle: Any) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 31), "uint8")).save(tmp_path / "a.png")
    for kind in ("resnet", "vit"):
        values = view("histograms", handle(kind), str(tmp_path / "a.png"), tmp_path / "a.html")
        assert len(values["activations"]) > 1


def record(step: int, spread: float) -> dict[str, Any]:
    one = {"low": -spread, "high": spread, "counts": torch.arange(32).tolist(), "outside": 0}
    return {"step": step, "weights": {"a.0": one, "a.1": one}, "gradients": {"a.0": one} if step else {}}


def test_a_run_is_drawn_by_step(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    run.mkdir()
    rows = [record(step, 1.0 + step) for step in (0, 50, 100)]
    (run / "histograms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = view("histograms", run, out=tmp_path / "a.png")
    assert values["steps"] == [0, 50, 100]
    first, second = values["layers"]
    assert first["weights"][2]["high"] == 101
    assert first["gradients"][0] is None
    assert second["gradients"] == [None, None, None]
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert [layer["name"] for layer in view("histograms", run, layer="a.1")["layers"]] == ["a.1"]
    view("histograms", run, out=tmp_path / "a.html")


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no histograms of its training\nhint: train with --set train.histograms=true"):
        view("histograms", tmp_path)
    with pytest.raises(ConfigError, match=r"gpt has no layer `decoder\.block\.1`"):
        view("histograms", small("gpt"), TEXT, layer="decoder.block.1")
