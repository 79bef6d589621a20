import gzip
from pathlib import Path

import pytest

from clearformer.data.labels import LabelSource
from clearformer.data.text_sample import TextSample, sample_texts
from clearformer.errors import DataError


def test_lines_from_all_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress("".join(f" text  {i}\n\n" for i in range(11)).encode()))
    assert sample_texts(path, None, 4) == TextSample([f"text {i}" for i in (0, 2, 5, 8)], [""] * 4)
    assert len(sample_texts(path, None, 99).texts) == 11


def test_labelled_texts_by_header_and_as_in_training(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("label\tsentence\ngood\tfine\nbad\tdull\n")
    assert sample_texts(tmp_path / "a.tsv", None, 7) == TextSample(["fine", "dull"], ["good", "bad"])
    (tmp_path / "b.tsv").write_text("good\tx\tfine\tindeed\nbad\ty\tdull\tindeed\n")
    kind = LabelSource(path=Path("elsewhere.tsv"), text=(2, 3), label=0)
    assert sample_texts(tmp_path / "b.tsv", kind, 7) == TextSample(["fine", "dull"], ["good", "bad"])
    (tmp_path / "c.jsonl").write_text('{"text": "fine", "label": 1}\n')
    assert sample_texts(tmp_path / "c.jsonl", None, 7) == TextSample(["fine"], ["1"])


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"blank\.txt is empty"):
        sample_texts(tmp_path / "blank.txt", None, 3)
    with pytest.raises(DataError, match="does not exist"):
        sample_texts(tmp_path / "none.txt", None, 3)
