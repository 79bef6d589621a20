"""torchvision's own answers, both ways, as make_answers.py noted them where it is installed."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.checkpoint import load_weights, weights_of
from clearformer.data.batch import ImageBatch
from clearformer.interop.torchvision.convert import export_weights, import_weights
from clearformer.models.build import build_model

from .make_answers import ANSWERS, CASES, images, our_config, ruled, signature

LARGE = ("vgg16", "vgg11_bn", "vit_b_16")
every_case = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in CASES]
)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    if not ANSWERS.exists():
        pytest.skip("make_answers.py has not been run yet")
    return dict(json.loads(ANSWERS.read_text(encoding="utf-8")))


@torch.no_grad()
def check(config: Any, weights: dict[str, Tensor], size: int, wanted: list[Any]) -> None:
    """Ours in float64, the same on every processor; theirs are on file as float32 had them, rounded for good."""
    model: Any = build_model(config).double().eval()
    load_weights(model, weights, "by rule")
    batch = ImageBatch(images(size).double())
    said = model.answers(batch) if len(wanted) > 1 else [model(batch)]
    for ours, theirs in zip(said, map(torch.tensor, wanted), strict=True):
        assert (ours - theirs).abs().max() <= 1e-4 * max(1.0, theirs.abs().max().item())


@every_case
def test_their_weights_say_here_what_they_say_there(answers: dict[str, Any], name: str) -> None:
    preset, size = CASES[name]
    with torch.device("meta"):
        names = export_weights(weights_of(build_model(our_config(preset))), our_config(preset))
    assert signature(names) == answers[name]["signature"]
    config, weights = import_weights(ruled(names), name)
    assert config == our_config(preset).changed(preset=None)
    check(config, weights, size, answers[name]["theirs"])


@every_case
def test_our_weights_say_there_what_they_say_here(answers: dict[str, Any], name: str) -> None:
    preset, size = CASES[name]
    config = our_config(preset)
    with torch.device("meta"):
        names = weights_of(build_model(config))
    check(config, ruled(names), size, answers[name]["ours"])
