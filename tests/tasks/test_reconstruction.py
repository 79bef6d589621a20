"""Images to an autoencoder: it learns to give them back, resumes bit for bit, and hands out codes."""

import json
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data.batch import ImageBatch
from clearformer.data.image_store import ImageStore
from clearformer.errors import CheckpointError, ConfigError
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.loading.open import open_model
from clearformer.models.build import build_model
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.verbs.export import export_model
from clearformer.verbs.load import load

from ..bounds import float32_bound_of

pytestmark = pytest.mark.usefixtures("no_images")
SIZE = 11


def bumps(n: int, seed: int) -> np.ndarray:
    """A light spot somewhere, which two numbers tell: uint8 (n, 11, 11)."""
    y, x = np.random.default_rng(seed).uniform(2, SIZE - 2, (2, n, 1, 1))
    grid = np.arange(SIZE)
    return (255 * np.exp(-((grid[:, None] - y) ** 2 + (grid - x) ** 2) / 8)).astype("uint8")


@pytest.fixture(scope="module")
def spots(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("spots") / "spots.npz"
    np.savez(path, images=bumps(400, 0), labels=np.zeros(400, int))
    return path


def recipe(path: Path, **tables: Any) -> Recipe:
    made: dict[str, Any] = {
        "data": {"train": {"path": str(path)}, "held_out": 0.2, "held_out_test": 0.2},
        "image": {"size": SIZE, "channels": 1},
        "model": {"kind": "autoencoder", "widths": [8, 16], "d_code": 7},
        "optim": {"lr": 0.01, "weight_decay": 0.0},
        "schedule": {"kind": "linear", "warmup": 10},
        "train": {"tokens": 31, "steps": 120, "validate_every": 40, "save_every": 40, "log_every": 40, "ema": 0.9},
    }
    return Recipe.parse({**made, **{name: made.get(name, {}) | table for name, table in tables.items()}}, "x.toml")


@pytest.fixture(scope="module")
def run(spots: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "spots"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        clearformer.train(recipe(spots), out=folder, device="cpu")
    return folder


def test_it_learns_to_give_images_back(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert report["test"]["error"] < 0.2  # of 1, what a network that always paints the mean would have
    coder, store = load(run), ImageStore(run / "data" / "test.safetensors")
    assert isinstance(coder, ImageAutoencoder)

    def paint(network: torch.nn.Module) -> torch.Tensor:
        pixels = coder.image.normalise(torch.from_numpy(store.pixels), next(network.parameters()).dtype)
        return network(ImageBatch(pixels))

    # (y + δ)² − y² = 2 y δ: pixels that are off by δ put an error of y² off by 2 δ / y of itself.
    off = float32_bound_of(open_model(run).network.eval(), paint, n_terms=9 * 16)
    rel = 2 * off / sqrt(report["test"]["error"])
    assert report["test"]["loss"] == pytest.approx(report["test"]["error"] * SIZE**2, rel=rel)
    assert float(coder.errors(store.pixels).mean()) == pytest.approx(report["test"]["error"], rel=rel)
    again, std = coder.reconstruct(store.pixels), coder.image.std[0]
    error = (again - torch.from_numpy(store.pixels) / 255).square().mean() / std**2
    assert float(error) == pytest.approx(report["test"]["error"], rel=rel)
    assert coder.vectors(store.pixels).shape == (len(store), 7)


@pytest.mark.parametrize("code", ["point", "gaussian"])
def test_a_cut_training_goes_on_bit_for_bit(spots: Path, goes_on, code: str) -> None:
    every = {"validate_every": 10, "save_every": 5, "steps": 20, "ema": 0.9}
    goes_on(recipe(spots, model={"code": code}, objective={"noise": 0.3}, train=every))


def test_validation_draws_the_same_noise_each_time(spots: Path, tmp_path: Path) -> None:
    noisy = recipe(spots, model={"code": "gaussian"}, objective={"noise": 0.5})
    task = fit.prepare(noisy, RunFolder(tmp_path / "run"), World(), None, None)
    model = build_model(task.recipe.model).eval()
    validate = task.validation(torch.device("cpu"))
    first, second = validate(model, 1), validate(model, 2)
    assert first == second
    assert first["loss"] > first["error"] * SIZE**2  # noise, a draw, and the divergence


def test_verbs_take_it(run: Path, spots: Path, tmp_path: Path) -> None:
    told = clearformer.evaluate(run, images=spots, device="cpu")
    assert (told["images"], told["left_out"]) == (400, 0)
    assert told["error"] < 0.2
    with pytest.raises(CheckpointError, match="transformers has no image autoencoder of this form"):
        export_model(run, tmp_path / "out")
    with pytest.raises(CheckpointError, match="is an image autoencoder: it cannot classify"):
        clearformer.classify(run, ["x.png"])
    with pytest.raises(CheckpointError, match="is an image autoencoder: it cannot score"):
        clearformer.score(run, ["a text"])
    with pytest.raises(ConfigError, match="mixup mixes labels"):
        clearformer.train(recipe(spots, image={"augment": {"mixup": 0.2}}), out=tmp_path / "run", device="cpu")
