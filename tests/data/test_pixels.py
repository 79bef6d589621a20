"""x̂ = (x / 255 − μ) / σ, and the store that μ and σ come from."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data.image_store import ImageStore, ImageWriter
from clearformer.data.pixels import ImageConfig
from clearformer.errors import DataError

N, C, SIZE = 13, 3, 7


@pytest.fixture
def pixels() -> np.ndarray:
    spread = np.array([255, 60, 3])[:, None, None]
    return (np.random.default_rng(1).random((N, C, SIZE, SIZE)) * spread).astype("uint8")


@pytest.fixture
def store(tmp_path: Path, pixels: np.ndarray) -> ImageStore:
    with ImageWriter(tmp_path / "new" / "train.safetensors", C, SIZE) as writer:
        for i, image in enumerate(pixels):
            writer.add(image, i % 5)
    return ImageStore(tmp_path / "new" / "train.safetensors")


def test_by_hand() -> None:
    image = ImageConfig(mean=(0.2, 0.4), std=(0.5, 0.1))
    found = image.normalise(torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 2, 1, 1))
    expected = [[-0.4, -4.0], [1.6, 6.0], [0.0, -2.0]]
    torch.testing.assert_close(found[:, :, 0, 0], torch.tensor(expected))
    assert image.normalise(found) is found  # numbers already


def test_the_stored_mean_and_spread_normalise(store: ImageStore, pixels: np.ndarray) -> None:
    image = ImageConfig(mean=store.mean, std=store.std)
    found = image.normalise(torch.from_numpy(store.pixels), torch.float64)
    torch.testing.assert_close(found.mean((0, 2, 3)), torch.zeros(C, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.std((0, 2, 3), unbiased=False), torch.ones(C, dtype=torch.float64))
    np.testing.assert_allclose(store.mean, pixels.mean((0, 2, 3)) / 255, rtol=1e-12)


def test_images_come_back_in_any_order(store: ImageStore, pixels: np.ndarray) -> None:
    rows = np.array([11, 0, 7, 7])
    batch = store.batch(rows)
    assert len(store) == N
    assert batch.pixels.numpy().tobytes() == pixels[rows].tobytes()
    assert batch.classes.tolist() == [1, 0, 2, 2]
    assert batch.n_tokens == 4
    assert not store.pixels.flags.owndata  # mapped, not read


def test_a_channel_that_never_changes_can_be_normalised(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "p", 1, 2) as writer:
        writer.add(np.full((1, 2, 2), 9, "uint8"), 0)
    store = ImageStore(tmp_path / "p")
    found = ImageConfig(mean=store.mean, std=store.std).normalise(torch.from_numpy(store.pixels))
    torch.testing.assert_close(found, torch.zeros_like(found), atol=1e-6, rtol=0)


def test_nothing_is_left_of_an_empty_or_failed_store(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "empty", C, SIZE):
        pass
    with pytest.raises(AssertionError, match="pixels has rows"), ImageWriter(tmp_path / "failed", C, SIZE) as writer:
        writer.add(np.zeros((C, SIZE, SIZE + 1), "uint8"), 0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "cut").write_bytes(b"\x10")
    with pytest.raises(DataError, match="is truncated or does not contain prepared images"):
        ImageStore(tmp_path / "cut")
