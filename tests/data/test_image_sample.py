from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearformer.data.image_sample import sample_images
from clearformer.data.images import ImageSource
from clearformer.data.pixels import ImageConfig
from clearformer.errors import DataError

IMAGE = ImageConfig(size=5, channels=1)


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """Eleven images, each of one grey, the later half of another class."""
    images = np.stack([np.full((5, 5), 10 * i, "uint8") for i in range(11)])
    np.savez(tmp_path / "greys.npz", images=images, labels=np.arange(11) // 6)
    return tmp_path / "greys.npz"


def test_some_from_all_over(stack: Path) -> None:
    source = ImageSource(path=Path("elsewhere"), names=("dark", "light"))
    sample = sample_images([stack], source, IMAGE, 4)
    assert sample.pixels[:, 0, 0, 0].tolist() == [0, 20, 50, 80]
    assert sample.labels == ["dark", "dark", "dark", "light"]
    assert len(sample_images([stack], source, IMAGE, 99).pixels) == 11


def test_single_files_and_sources_together(stack: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((7, 9), 200, "uint8")).save(tmp_path / "photo.png")
    sample = sample_images([tmp_path / "photo.png", stack], ImageSource(path=Path()), IMAGE, 99)
    assert (len(sample.pixels), sample.labels[:2]) == (12, ["", "0"])
    assert sample.pixels[0].tolist() == np.full((1, 5, 5), 200).tolist()


def test_what_cannot_be_read_is_left_out_or_said(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1 image, but none can be read: .*broken\.png cannot be read"):
        sample_images([tmp_path / "broken.png"], ImageSource(path=Path()), IMAGE, 3)
    with pytest.raises(DataError, match="does not exist"):
        sample_images([tmp_path / "none.png"], ImageSource(path=Path()), IMAGE, 3)
    Image.fromarray(np.zeros((5, 5), "uint8")).save(tmp_path / "whole.png")
    sample = sample_images([tmp_path / "broken.png", tmp_path / "whole.png"], ImageSource(path=Path()), IMAGE, 3)
    assert len(sample.pixels) == 1
