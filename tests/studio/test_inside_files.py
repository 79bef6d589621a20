"""Look inside image, speech and recurrent models: from a layer to a head or feature map to a cell, and the walk."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.lens.reading import read
from clearformer.loading.open import handle_of, open_model
from clearformer.serve.uploads import opened_file
from clearformer.verbs.lens import view

from ..serve.media_models import as_png, stripes, tone
from .driving import choose, expect, open_page, params, saved

pytestmark = pytest.mark.browser
PNG, WAV = as_png(stripes(True, 1)), tone("low high low")
VERTICAL = {"name": "stripes.png", "mimeType": "image/png", "buffer": PNG}
TONES = {"name": "tones.wav", "mimeType": "audio/wav", "buffer": WAV}


@pytest.fixture(scope="module")
def handle(runs: Path) -> Any:
    return lambda name: handle_of(open_model(runs / "media" / name))


def test_look_inside_a_convolutional_network(page: Any, url: str, handle: Any) -> None:
    """From a layer to a feature map to one of its values, the pixels that it sees, and all channels there."""
    open_page(page, url, "inside?model=runs/media/stripes&name=stages.1.0.out")
    choose(page, VERTICAL)
    expect(page.get_by_role("heading", name="7 feature maps (8 × 8)")).to_be_visible()
    expect(page.locator(".gridplace .tile")).to_have_count(7)
    page.locator(".gridplace .tile").nth(4).click()
    expect(page.get_by_role("heading", name="stages.1.0.out, channel 4")).to_be_visible()
    page.get_by_role("group", name=re.compile("^stages.1.0.out, channel 4")).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name="Channel 4, row 1, column 1")).to_be_visible()
    found = params(page)
    assert (found["head"], found["cell"]) == ("4", "1,1")
    with torch.no_grad():
        _, look = read(handle("stripes"), np.array(stripes(True, 1))[None]).look(["stages.1.0.out"])
    maps = look["stages.1.0.out"][0]
    terms = dict(zip(page.locator(".cellpanel dt").all_inner_texts(), page.locator(".cellpanel dd").all_inner_texts()))
    assert terms["depends on"] == "13 × 13 pixels"
    assert float(terms["value"]) == pytest.approx(float(maps[4, 1, 1]), abs=6e-3)
    channels = json.loads(saved(page, "all channels"))["values"]
    assert channels == pytest.approx(maps[:, 1, 1].tolist(), rel=1e-3, abs=1e-4)
    values = json.loads(saved(page, "Activation"))
    assert values["channel"] == 4
    np.testing.assert_allclose(values["values"], maps[4], rtol=1e-3, atol=1e-4)
    expect(page.get_by_role("img", name="What Channel 4, row 1, column 1 sees")).to_be_visible()
    assert "data:image/png;base64," in saved(page, "What it sees", "save as SVG")


def test_look_inside_a_vision_transformer(page: Any, url: str, handle: Any) -> None:
    """From a layer to a head to a weight, the patches that a row attends to, and the walk from patch to class."""
    open_page(page, url, "inside?model=runs/media/patches&name=encoder.blocks.1.attn.pattern&head=3&cell=0,6")
    choose(page, VERTICAL)
    expect(page.get_by_role("heading", name="encoder.blocks.1.attn.pattern, head 3")).to_be_visible()
    expect(page.locator(".heads .show")).to_have_count(5)
    expect(page.get_by_role("heading", name="<class> → patch 5")).to_be_visible()
    reading = read(handle("patches"), np.array(stripes(True, 1))[None])
    _, look = reading.look(["encoder.blocks.1.attn.pattern"])
    weights = look["encoder.blocks.1.attn.pattern"][0, 3, 0, 1:].reshape(4, 4)
    np.testing.assert_allclose(json.loads(saved(page, "Where <class> looks"))["values"], weights, rtol=1e-3, atol=1e-5)
    page.get_by_text("Step by step").click()
    expected = view("walk", handle("patches"), np.array(stripes(True, 1))[None])["steps"]
    expect(page.locator(".steps strong")).to_have_text([f"{i}. {step['name']}" for i, step in enumerate(expected, 1)])
    expect(page.get_by_role("heading", name="1. patch")).to_be_visible()


def test_look_inside_a_speech_recogniser(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, "inside?model=runs/media/tones&name=layers.l0.forget&cell=2,3")
    choose(page, TONES)
    expect(page.get_by_role("heading", name="layers.l0.forget")).to_be_visible()
    _, look = read(handle("tones"), opened_file(handle("tones"), WAV)).look(["layers.l0.forget"])
    n_frames = look["layers.l0.forget"].size(1)
    expect(page.locator(".facts")).to_contain_text(f"Shape {n_frames} × 16")  # no longer the shape of the example
    values = json.loads(saved(page, "Activation"))
    np.testing.assert_allclose(values["values"], look["layers.l0.forget"][0], rtol=1e-3, atol=1e-4)
    assert values["rows"][2] == "0.13 s"
    expect(page.get_by_role("heading", name="0.13 s, feature 3")).to_be_visible()
    column = json.loads(saved(page, "feature 3"))["values"]
    assert column == pytest.approx([row[3] for row in values["values"]])
    expect(page.get_by_text("Step by step")).to_have_count(0)  # a walk goes through attention


def test_look_inside_a_recurrent_network(page: Any, url: str, runs: Path) -> None:
    """States and gates by token; the first state is shown first."""
    open_page(page, url, "inside?model=runs/lstm&text=the king saw&cell=1,4")
    expect(page.get_by_role("heading", name="layers.l0.h", exact=True)).to_be_visible()
    _, look = read(handle_of(open_model(runs / "lstm")), "the king saw").look(["layers.l0.h", "layers.l1.forget"])
    values = json.loads(saved(page, "Activation"))
    np.testing.assert_allclose(values["values"], look["layers.l0.h"][0], rtol=1e-3, atol=1e-4)
    word = values["rows"][1]
    expect(page.get_by_role("heading", name=f"{word}, feature 4")).to_be_visible()
    page.get_by_label("Activations").first.fill("l1.forget")
    page.locator("[data-name='layers.l1.forget']").click()
    expect(page.get_by_role("heading", name="layers.l1.forget", exact=True)).to_be_visible()
    values = json.loads(saved(page, "Activation"))
    np.testing.assert_allclose(values["values"], look["layers.l1.forget"][0], rtol=1e-3, atol=1e-4)


def test_look_inside_a_classifier_of_pairs(page: Any, url: str) -> None:
    open_page(page, url, "inside?model=runs/media/same&text=the fine film&pair=a dull story")
    expect(page.get_by_label("Second text of the pair")).to_have_value("a dull story")
    values = json.loads(saved(page, "Activation"))
    assert "dull" in values["rows"]
    assert values["text"] == "the fine film\ta dull story"
