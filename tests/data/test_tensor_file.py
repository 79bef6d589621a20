"""A file that grows row by row is an ordinary safetensors file in the end, or nothing at all."""

from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

from clearformer.data.tensor_file import TensorFileWriter, TensorSpec

KINDS = {"classes": TensorSpec("int64"), "pixels": TensorSpec("uint8", (3, 5, 7))}


def test_rows_of_any_shape_come_back(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (13, 3, 5, 7), "uint8")
    file = TensorFileWriter(tmp_path / "new" / "p.safetensors", KINDS, {"a": "b"})
    for part in (rows[:2], rows[2:2], rows[2:]):
        file.append("pixels", part)
    file.append("classes", np.arange(13))
    file.metadata["c"] = "d"  # what is known only at the end
    assert file.is_open
    file.join()
    assert not file.is_open
    found = load_file(file.path)
    assert found["pixels"].tobytes() == rows.tobytes()
    assert found["pixels"].shape == rows.shape
    assert found["classes"].tolist() == list(range(13))
    with safe_open(file.path, framework="np") as opened:
        assert opened.metadata() == {"a": "b", "c": "d"}
    assert [path.name for path in file.path.parent.iterdir()] == ["p.safetensors"]


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    file = TensorFileWriter(tmp_path / "p.safetensors", KINDS)
    file.append("classes", np.arange(2))
    file.discard()
    assert list(tmp_path.iterdir()) == []
