"""Generated corpora have the sizes that they state; models have the same weights for every library."""

from pathlib import Path

import pytest

from clearformer.speed import corpora
from clearformer.speed.context import Context


@pytest.fixture
def here(tmp_path: Path) -> Context:
    return Context(str(tmp_path), "x", 0, "cpu", 1, is_quick=True)


def test_random_pairs(here: Context) -> None:
    lines = Path(corpora.random_pairs(here, 97)).read_text().splitlines()
    assert len(lines) == 97
    for line in lines:
        source, target = line.split("\t")
        assert source.split() == target.split()[::-1]
        assert 4 <= len(source.split()) <= 16


def test_random_text_contains_its_whole_vocabulary(here: Context) -> None:
    words = Path(corpora.random_text(here, 89, 500)).read_text().split()
    assert len(words) == 500
    assert len(set(words)) == 89


def test_real_corpora_are_used_if_they_are_there(here: Context, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "ptb"
    folder.mkdir(parents=True)
    (folder / "ptb.train.txt.gz").touch()
    given = Context(str(tmp_path), "x", 0, "cpu", 1, True, data=str(tmp_path / "data"))
    assert corpora.treebank(given) == (str(folder / "ptb.train.txt.gz"), "Penn Treebank")
    assert corpora.small_pairs(given)[1] == "29,000 pairs of the bundled grammar"
