"""Every worked example of the notes, and the rule by which a figure agrees."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import clearformer
from clearformer.errors import ConfigError
from clearformer.worked import EXAMPLES, find
from clearformer.worked.example import Example, Figure, equal, line_of
from clearformer.worked.images import build_on_meta, grouped
from clearformer.worked.sizes import count

ROOT = Path(clearformer.__file__).parents[1]


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_the_figures_of_an_example(example: Example) -> None:
    figures = example.run()
    assert figures
    assert [figure for figure in figures if not figure.agrees] == []
    assert len({figure.what for figure in figures}) == len(figures)
    assert [figure for figure in figures if figure.notes is None and figure.expected is None] == []


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_the_line_of_code_is_where_it_begins(example: Example) -> None:
    for place in example.lines():
        path, number = place.split(":")
        line = (ROOT / path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert re.match(r"\s*(def|class|@)", line), place


def test_the_examples_that_the_notes_work_out() -> None:
    assert len(EXAMPLES) >= 40
    asked = "apple mixture parameter-free lookup cat low one-hot ball clipping inception derivatives identities alexnet"
    asked += " bptt layer-norm variance shift one-wave bert gpt lora vgg"
    assert set(asked.split()) <= set(EXAMPLES)


def test_a_figure_agrees_with_the_notes_or_states_their_slip() -> None:
    assert Figure("a", 3, notes=3).agrees
    assert not Figure("a", 3, notes=4).agrees  # wrong, and no slip is stated
    assert Figure("a", 3, notes=4, expected=3, slip="a slip").agrees
    assert not Figure("a", 5, notes=4, expected=3, slip="a slip").agrees
    assert not Figure("a", 3, notes=3, expected=3, slip="a slip").agrees  # no slip at all
    assert Figure("a", 3, expected=3).agrees
    assert not Figure("a", 3, expected=2).agrees
    assert not Figure("a", 3).agrees


def test_values_are_compared_within_a_relative_tolerance() -> None:
    assert equal(1000, 1000.0001, 1e-6)
    assert not equal(1000, 1000.1, 1e-6)
    assert equal(0.0, 1e-9, 1e-6)
    assert equal([1, [2.0, "a"]], [1, [2, "a"]], 1e-6)
    assert not equal([1], [1, 2], 1e-6)
    assert not equal("1", 1, 1e-6)
    assert not equal(float("nan"), float("nan"), 1e-6)


def test_an_example_leaves_random_numbers_as_they_were() -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    find("bptt").run()
    assert torch.randn(3).equal(expected)


def test_an_unknown_example() -> None:
    with pytest.raises(ConfigError, match="no worked example `aple`\nhint: did you mean `apple`"):
        find("aple")


def test_the_place_of_a_function() -> None:
    path, number = line_of(line_of).split(":")
    assert path == "clearformer/worked/example.py"
    assert (ROOT / path).read_text(encoding="utf-8").splitlines()[int(number) - 1].startswith("def line_of(")


def test_the_page_has_every_example() -> None:
    page = (ROOT / "docs" / "notes.md").read_text(encoding="utf-8")
    table = page[page.index("| subject |") :]
    assert re.findall(r"`([\w-]+)`[,|\s]", table.split("\n\n")[0]) == list(EXAMPLES)


def test_alexnet_with_the_groups_of_its_paper() -> None:
    """Layer by layer, with torch's groups: the second, fourth and fifth convolution see half of the channels."""
    layers = [
        nn.Conv2d(3, 96, 11), nn.Conv2d(96, 256, 5, groups=2), nn.Conv2d(256, 384, 3),
        nn.Conv2d(384, 384, 3, groups=2), nn.Conv2d(384, 256, 3, groups=2),
    ]  # fmt: skip
    with torch.device("meta"):
        layers += [nn.Linear(9216, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)]
    assert sum(map(count, layers)) == 60_965_224
    assert grouped(build_on_meta("alexnet")) == 60_965_224
    assert count(build_on_meta("alexnet")) == 62_378_344
