"""Every figure in the documents is a link to the result it comes from, and says what the result says.

[41.18](benchmarks/results/multi30k-en-de.json#mean_bleu)        a key, or a path of keys: #seeds.0.bleu
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("clearformer/bundled/models/*/*.md")])
FIGURE = re.compile(r"\[([^\]]+)\]\(([^)]*results/[\w.-]+\.json)#([\w.-]+)\)")
FIGURES = [
    pytest.param(document, *match.groups(), id=f"{document.name}:{match[3]}")
    for document in DOCUMENTS
    for match in FIGURE.finditer(document.read_text(encoding="utf-8"))
]


def look_up(value: object, path: str) -> object:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]  # type: ignore[index]
    return value


def test_there_are_figures() -> None:
    assert len(FIGURES) >= 5


@pytest.mark.parametrize(("document", "shown", "file", "path"), FIGURES)
def test_a_figure_is_what_was_measured(document: Path, shown: str, file: str, path: str) -> None:
    measured = look_up(json.loads((ROOT / "benchmarks" / "results" / Path(file).name).read_text()), path)
    number = re.search(r"-?[\d,]*\.?\d+", shown)
    assert number is not None, f"`{shown}` is not a number"
    digits = number[0].replace(",", "")
    decimals = len(digits.partition(".")[2])
    assert isinstance(measured, int | float)
    assert f"{measured:.{decimals}f}" == digits


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda file: file.name)
def test_a_result_says_how_it_was_made(file: Path) -> None:
    result = json.loads(file.read_text())
    assert {"command", "commit", "versions", "date"} <= result.keys()


def test_links_in_the_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            places = [document.parent / target, ROOT / target]
            assert any(place.exists() for place in places), f"{document.name} links to {target}"
