"""ResNet-18 and ResNet-34 of the experiment, and the summary of its runs."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from clearformer.models.build import build_model
from clearformer.recipe import Recipe

RECIPE = Path(__file__).parents[2] / "recipes" / "fashion-depth.toml"


@pytest.fixture
def depth() -> Any:
    return import_module("depth")


@pytest.mark.parametrize(("name", "layers"), [("resnet18", 18), ("resnet34", 34)])
def test_a_network_has_as_many_layers_as_its_name_says(depth: Any, name: str, layers: int) -> None:
    """Convolutions of width 3 and the head; the 1×1 convolutions of the shortcuts do not count."""
    experiment = depth.EXPERIMENTS["fashion-resnets"]
    settings = [*experiment.settings.split(), *experiment.networks[name].split()]
    model = build_model(Recipe.read(RECIPE, settings).model)
    counted = [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1))
    ]
    assert len(counted) == layers


def test_both_networks_have_one_budget(depth: Any) -> None:
    for name, experiment in depth.EXPERIMENTS.items():
        for settings in experiment.networks.values():
            assert all(setting.startswith("model.") for setting in settings.split()), name


def test_a_summary_compares_the_networks_seed_by_seed(
    depth: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds: the means, the last training losses, and a curve by epochs."""
    experiment = depth.Experiment({}, images=2000, batch=100)  # 1,900 images, so 19 steps are an epoch
    reports: dict[int, Path] = {}
    for seed, accuracy in ((1, 0.8), (2, 0.9)):
        run = tmp_path / f"net-{seed}"
        run.mkdir()
        rows = [{"kind": "train", "step": 19 * k, "loss": seed / k} for k in (1, 2)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
        (run / "report.json").write_text(json.dumps({"accuracy": accuracy}))
        reports[seed] = run / "report.json"

    def row(report: Path, seed: int) -> dict[str, Any]:
        accuracy = json.loads(report.read_text())["accuracy"]
        return {"seed": seed, "valid": {"accuracy": accuracy + 0.02}, "accuracy": accuracy, "loss": 1.0}

    monkeypatch.setattr(depth, "row", row)
    networks, lines = depth.compared(experiment, {"net": reports})
    assert networks["net"]["test_accuracy"] == 0.85
    assert networks["net"]["valid_accuracy"] == 0.87
    assert networks["net"]["training_loss"] == 0.75
    assert [one["training_loss"] for one in networks["net"]["seeds"]] == [0.5, 1.0]
    assert lines["net"] == ([1.0, 2.0], [1.5, 0.75])
