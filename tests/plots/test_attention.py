import re
from pathlib import Path

import numpy as np
import pytest

from clearformer.errors import DataError
from clearformer.plots import plot_attention

H, T, S = 3, 5, 7
SOURCE = ["<s>", "यह", "छोटा", "घर", "है", "।", "</s>"]
TARGET = ["▁this", "$x$", " ", "\n", "中"]


def make_pattern(heads: int, target: int, source: int) -> np.ndarray:
    weights = np.random.default_rng(0).random((heads, target, source))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_any_script_is_drawn_without_missing_glyphs(tmp_path: Path, suffix: str, magic: bytes) -> None:
    """matplotlib warns of a missing glyph, and a warning is an error."""
    path = plot_attention(make_pattern(H, T, S), SOURCE, TARGET, tmp_path / f"map.{suffix}", title="ध्यान, layer 2")
    assert path.read_bytes().startswith(magic)


def test_a_panel_for_each_head_and_the_mean_with_words_on_both_axes(tmp_path: Path) -> None:
    svg = plot_attention(make_pattern(H, T, S), list("abcdefg"), [*TARGET[:4], "z"], tmp_path / "map.svg").read_text()
    panels = ["head 0", "head 1", "head 2", "mean of heads"]
    assert [svg.count(f"<!-- {title} -->") for title in [*panels, "head 3"]] == [1, 1, 1, 1, 0]
    # Two by two panels: words on the two at the left, and on the two at the foot; $x$ is no formula.
    assert [svg.count(f"<!-- {word} -->") for word in ["a", "g", "▁this", "$x$", "z"]] == [2] * 5


def test_long_sentences_skip_words_but_keep_their_size(tmp_path: Path) -> None:
    source, target = [f"s{i}" for i in range(83)], [f"t{i}" for i in range(97)]
    svg = plot_attention(make_pattern(1, 97, 83), source, target, tmp_path / "map.svg").read_text()
    assert "<!-- t4 -->" in svg
    assert "<!-- t1 -->" not in svg
    assert "<!-- mean of heads -->" not in svg  # of one


def test_a_title_that_is_wider_than_the_picture_goes_on_below(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(23)]
    svg = plot_attention(
        make_pattern(1, 2, 2), ["a", "b"], ["c", "d"], tmp_path / "map.svg", " ".join(words)
    ).read_text()
    lines = re.findall("<!-- (word.*) -->", svg)
    assert " ".join(lines).split() == words
    assert max(map(len, lines)) < 60


@pytest.mark.parametrize("shape", [(H, S, T), (T, S), (0, T, S)])
def test_a_pattern_that_does_not_fit_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"does not fit 5 target tokens and 7 source tokens"):
        plot_attention(np.zeros(shape), SOURCE, TARGET, tmp_path / "map.png")
