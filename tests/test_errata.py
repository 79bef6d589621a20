"""docs/errata.md: every row names tests that exist; and the corrections that no other test holds."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from clearformer.data.batch import batch_class
from clearformer.models.build import build_model, model_config
from clearformer.worked import EXAMPLES

ROOT = Path(__file__).parent.parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "errata.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not re.match(r"\|( place |---)", line)
]


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_there_are_as_many_errata_as_were_counted() -> None:
    assert len(ROWS) >= 55
    assert all(len(row) == 4 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:50])
def test_the_tests_of_a_row_exist(row: list[str]) -> None:
    for name in row[-1].split(", "):
        match = re.fullmatch(r"(tests/[\w/]+\.py)::(test_\w+)(?:\[([\w-]+)\])?", name)
        assert match, f"`{name}` is no name of a test"
        path, test, example = match.groups()
        assert test in names_in(ROOT / path), name
        assert example is None or example in EXAMPLES, name


@pytest.mark.parametrize("row", [row for row in ROWS if "an_example[" in row[-1]], ids=lambda row: row[1][:50])
def test_an_example_named_in_a_row_states_a_slip(row: list[str]) -> None:
    """Except where the notes are right after all, or a layout is shown that no figure of theirs contradicts."""
    names = re.findall(r"an_example\[([\w-]+)\]", row[-1])
    assert names
    if not {"mask", "layer-norm", "good-boy"} & set(names):
        assert all(any(figure.slip for figure in EXAMPLES[name].run()) for name in names)


def test_covariate_shift_is_outside_and_internal_covariate_shift_inside() -> None:
    """White roses change the input and no weight; an update below changes what a layer reads, for the same input."""
    torch.manual_seed(0)
    red, white = torch.tensor([[1.0, 0.0, 0.0]]).repeat(8, 1), torch.ones(8, 3)
    below, above = nn.Linear(3, 5), nn.Linear(5, 2)
    before = below(red).mean(0)
    assert not torch.equal(red.mean(0), white.mean(0))  # the shift that the notes describe: no layer has learnt
    cross_entropy(above(below(red)), torch.zeros(8, dtype=torch.long)).backward()
    torch.optim.SGD(below.parameters(), 0.5).step()
    after = below(red).mean(0)
    assert (after - before).abs().max() > 0.01  # the internal one: the same roses, and `above` reads other numbers


def test_nothing_vanishes_in_deep_plain_networks_and_gradients_grow() -> None:
    """The deviation of the logits, and how much gradients grow from the last to the first convolution, untrained."""
    spread, growth = {}, {}
    for name in ("plain20", "plain56", "resnet56"):
        torch.manual_seed(0)
        model = build_model(model_config(name))
        batch = batch_class(model).blank(8, 32, 3)
        batch.pixels.normal_()
        logits = model(batch)
        cross_entropy(logits, torch.arange(8)).backward()
        norms = [p.grad.norm().item() for p in model.parameters() if p.dim() == 4]
        spread[name], growth[name] = logits.std().item(), norms[0] / norms[-1]
    assert spread["plain20"] / 2 < spread["plain56"] < 2 * spread["plain20"]
    assert growth["plain20"] > 1
    assert growth["plain56"] > 30 * growth["resnet56"] > 30


def test_no_language_has_ten_to_the_eighty_words() -> None:
    assert sum(26**n for n in range(1, 57)) < 10**80 < sum(26**n for n in range(1, 58))
