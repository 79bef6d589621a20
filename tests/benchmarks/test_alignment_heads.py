"""Alignment scores by hand, IBM model 1 on a language of four words, and the links that are stored."""

import random
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearformer
from clearformer.lens.session import Lens


@pytest.fixture
def heads() -> Any:
    return import_module("alignment_heads")


@pytest.fixture
def tokens() -> Any:
    return import_module("token_alignment")


PATTERN = torch.tensor(
    [
        [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]],
        [[0.1, 0.9, 0.0], [0.4, 0.3, 0.3], [0.0, 0.1, 0.9]],
    ]
)
"""(H, T, S): two heads, two target tokens and EOS, three source tokens."""


def test_a_head_hits_where_it_attends_most(heads: Any) -> None:
    links = [(0, 0), (2, 1)]
    assert heads.hits(PATTERN, links).tolist() == [[True, True], [False, False]]
    assert heads.hits(PATTERN, links, shift=1).tolist() == [[False, False], [True, True]]
    torch.testing.assert_close(heads.mass(PATTERN, links), torch.tensor([[0.7, 0.6], [0.1, 0.3]]))


def test_the_diagonal_guesses_the_same_relative_position(heads: Any) -> None:
    """Of six target tokens, two belong to each of three source tokens."""
    assert heads.diagonal_hits(3, 6, [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]) == [True] * 6
    assert heads.diagonal_hits(3, 6, [(1, 1), (0, 2), (0, 5)]) == [False] * 3


def test_punctuation_is_not_aligned(heads: Any) -> None:
    source, target = ["▁I", "'", "m", "▁5", "."], ["▁je", "▁suis", "▁5", "."]
    assert heads.with_letters(source, target, [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)]) == [(0, 0), (2, 1)]


def test_more_and_more_heads_are_switched_off_in_order(heads: Any) -> None:
    order = heads.in_order({"a": [0.1, 0.7], "b": [0.9, 0.3]})
    assert order == [("b", 0), ("a", 1), ("b", 1), ("a", 0)]
    asked: list[tuple[Any, ...]] = []

    def bleu(off: Any) -> float:
        asked.append(tuple(off))
        return 50.0 - len(off)

    assert heads.cumulative(bleu, order) == [50, 49, 48, 47, 46]
    assert asked[0] == ()
    assert asked[2] == (("b", 0), ("a", 1))
    assert asked[4] == tuple(order)


def test_bleu_falls_without_cross_attention_and_the_model_is_left_as_it_was(heads: Any) -> None:
    pairs = [(text, "", []) for text in ("Where is the station?", "The cat eats the mouse.", "I like this book.")]
    translator = clearformer.load()
    before = translator.translate([pair[0] for pair in pairs], beam=1)
    bleu = heads.Bleu(translator, [(source, target, []) for (source, _, _), target in zip(pairs, before)])
    assert bleu([]) == 100
    everything = [(heads.place(layer), head) for layer in range(3) for head in range(4)]
    assert bleu(everything) < 20
    assert translator.translate([pair[0] for pair in pairs], beam=1) == before


def test_the_mean_output_of_heads_is_over_all_target_tokens(heads: Any) -> None:
    """Heads replaced by their means over the only token there is, EOS, are left as they are."""
    translator = clearformer.load()
    means = heads.mean_outputs(translator, [("Go.", "", [])])
    batch = translator.batch([(translator.encode_sources(["Go."])[0], [])])
    with torch.inference_mode(), Lens(translator.model, keep=["decoder.blocks.1.cross.z"]) as look:
        translator.model(batch)
    assert set(means) == {heads.place(layer) for layer in range(3)}
    torch.testing.assert_close(means[heads.place(1)], look["decoder.blocks.1.cross.z"])
    more = heads.mean_outputs(translator, [("Go.", "", []), ("Go.", "Va !", [])])
    assert more[heads.place(1)].shape == means[heads.place(1)].shape
    assert not torch.allclose(more[heads.place(1)], means[heads.place(1)])


def test_the_prior_is_a_distribution_around_the_diagonal(tokens: Any) -> None:
    prior = tokens.diagonal(5, 3)
    assert prior.shape == (3, 6)
    np.testing.assert_allclose(prior.sum(1), 1)
    np.testing.assert_allclose(prior[:, 0], 0.08)
    assert prior[:, 1:].argmax(1).tolist() == [1, 2, 4]  # 1/3, 2/3 and 1 of the way: nearest to 2/5, 3/5 and 5/5


def test_model_1_learns_a_dictionary(tokens: Any) -> None:
    """Word w is translated by 10 − w, and the words come in any order."""
    draw = random.Random(0)
    sources = [draw.sample(range(11), 4) for _ in range(100)]
    pairs = [(source, [10 - word for word in draw.sample(source, 4)]) for source in sources]
    forward = tokens.Model1(pairs, 11)
    backward = tokens.Model1([(target, source) for source, target in pairs], 11)
    source, target = [2, 3, 5, 7], [7, 8, 3, 5]
    assert forward.best(source, target) == [1, 0, 3, 2]
    assert tokens.agreed(forward.best(source, target), backward.best(target, source)) == [
        (1, 0),
        (0, 1),
        (3, 2),
        (2, 3),
    ]


def test_only_links_of_both_directions_count(tokens: Any) -> None:
    """Target 0 comes from source 1 and back, target 1 from nothing, and source 0 leads elsewhere than target 2."""
    assert tokens.agreed([1, -1, 0], [1, 0]) == [(1, 0)]


def test_links_are_written_and_read(tokens: Any, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a b\tb a\t{tokens.written([(0, 1), (1, 0)])}\n", encoding="utf-8")
    assert tokens.read(path) == [("a b", "b a", [(0, 1), (1, 0)])]
