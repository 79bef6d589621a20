"""docs/claims.md, the ledger of the notes: it is what claims.toml says, and what it names exists and runs."""

import ast
import re
import shlex
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer

ROOT = Path(__file__).parent.parent
SPEC = spec_from_file_location("ledger", ROOT / "docs" / "claims.py")
assert SPEC is not None
assert SPEC.loader is not None
ledger = module_from_spec(SPEC)
SPEC.loader.exec_module(ledger)

ITEMS: list[dict[str, Any]] = ledger.read_items()
COMMANDS = sorted({item["command"] for item in ITEMS if "command" in item})
KEYS = {"place", "claim", "equation", "code", "test", "command", "figure", "verdict", "note", "results"}
OWN_FILES = re.compile(r"RUN\b|\b(recipes|photos)/|\b\w+\.(tsv|txt)\b|\bdemo\b")  # needs a run or data of the user
LIVE = [command for command in COMMANDS if command.startswith("clearformer") and not OWN_FILES.search(command)]
QUICK = [command for command in LIVE if command.split()[1] in ("notes", "inspect")]
SLOW = [command for command in LIVE if command not in QUICK]


def test_the_ledger_has_every_item_of_the_notes() -> None:
    assert len(ITEMS) == 303
    assert [item["place"] for item in ITEMS if not item["place"].startswith(tuple(ledger.SOURCES))] == []
    for item in ITEMS:
        assert item.keys() <= KEYS
        assert item["verdict"] in ledger.VERDICTS
        assert item["verdict"] in ("holds", "a fact") or "note" in item, item["place"]


def test_the_page_is_what_the_file_says() -> None:
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == ledger.page(ITEMS), "run python docs/claims.py"


def test_every_row_of_the_page_has_every_column() -> None:
    rows = [line for line in ledger.page(ITEMS).splitlines() if re.match(r"\| (\d+|#) \|", line)]
    assert len(rows) == 303 + len(ledger.SOURCES)
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {11}


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def has_symbol(code: str) -> bool:
    """Whether a file defines a function, class, method or constant: FILE::Class.method."""
    path, symbol = code.split("::")
    nodes: list[Any] = [parsed(path)]
    for name in symbol.split("."):
        nodes = [child for node in nodes for child in getattr(node, "body", []) if name in names_of(child)]
    return bool(nodes)


@pytest.mark.parametrize("code", sorted({item["code"] for item in ITEMS if "code" in item}))
def test_a_symbol_exists(code: str) -> None:
    assert has_symbol(code)


def test_a_symbol_that_does_not_exist_would_be_noticed() -> None:
    assert has_symbol("clearformer/layers/attention.py::MultiHeadAttention.remember")
    assert not has_symbol("clearformer/layers/attention.py::MultiHeadAttention.forget")
    assert not has_symbol("clearformer/layers/attention.py::attention")


@pytest.mark.parametrize("test", sorted({item["test"] for item in ITEMS if "test" in item}))
def test_the_test_of_a_row_exists(test: str) -> None:
    """A parameter is the name of a worked example: tests/worked/test_examples.py::test_…[apple]."""
    from clearformer.worked import EXAMPLES

    place, _, parameter = test.partition("[")
    assert re.fullmatch(r"tests/[\w/]+\.py::test_\w+", place)
    assert has_symbol(place)
    assert not parameter or parameter.removesuffix("]") in EXAMPLES


def test_nearly_every_row_has_a_test() -> None:
    """The others are facts, or need a published model, a GPU or files of the user."""
    without = [item for item in ITEMS if "test" not in item]
    assert len(without) <= 7
    assert all(item["verdict"] == "a fact" or "command" in item for item in without)


def test_a_slip_is_held_by_the_test_of_its_erratum() -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    slips = [item for item in ITEMS if item["verdict"] == "is a slip"]
    assert [item["place"] for item in slips if item["test"] not in page] == []


def test_every_item_but_facts_has_code() -> None:
    assert {item["verdict"] for item in ITEMS if "code" not in item} == {"a fact"}


@pytest.mark.parametrize("item", [item for item in ITEMS if "json" in item.get("figure", "")], ids=lambda i: i["place"])
def test_a_figure_carries_the_hash_of_its_result(item: dict[str, Any]) -> None:
    """If a result changes, look at the verdict again, then run python docs/claims.py --stamp."""
    files = {file for file, _ in ledger.NAMED.findall(item["figure"])}
    assert {stamp.partition("@")[0] for stamp in item["results"]} == files
    for stamp in item["results"]:
        file, _, digits = stamp.partition("@")
        assert ledger.hash_of(file) == digits, f"{file} has changed"


def test_a_figure_without_a_result_is_computed_by_its_command() -> None:
    assert [item["place"] for item in ITEMS if "figure" in item and not {"results", "command"} & item.keys()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_valid(command: str) -> None:
    from clearformer.cli import app
    from clearformer.cli.options import DataCommand, parse_data

    program, *words = shlex.split(command)
    if program == "python":
        assert (ROOT / words[0]).is_file()
        return
    assert program == "clearformer"
    root: Any = typer.main.get_command(app)
    with root.make_context("clearformer", list(words)) as parent:
        context = root.commands[words[0]].make_context(words[0], words[1:], parent=parent)
    if isinstance(context.command, DataCommand):
        parse_data({option.name: context.params[option.name] for option in context.command.data_options()})
    for word in words:
        assert not word.startswith("recipes/") or (ROOT / word).is_file(), word


def run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process, in an empty folder, and return its exit code."""
    from clearformer.cli import app

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as end:
        app()
    return int(end.value.code or 0)


def test_there_are_commands_to_run() -> None:
    assert len(QUICK) >= 40
    assert len(SLOW) >= 10


def parts(text: str) -> set[str]:
    """The numbers in a text, or its words if it has no numbers."""
    numbers = re.findall(r"\d[\d.]*\d|\d", text.replace(",", ""))
    return set(numbers or re.findall(r"\w+", text))


def test_quick_commands_run_and_print_the_figures_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for command in QUICK:
        assert run(command, tmp_path, monkeypatch) == 0, command
        shown[command] = capsys.readouterr().out
    rows = [item for item in ITEMS if item.get("command") in shown and "figure" in item and "results" not in item]
    assert len(rows) >= 30
    for item in rows:
        text = shown[item["command"]]
        assert parts(item["figure"]) <= parts(text) | set(re.findall(r"\w+", text)), item


@pytest.mark.slow
@pytest.mark.parametrize("command", SLOW)
def test_a_slow_command_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(command, tmp_path, monkeypatch) == 0


def lines_of(place: str) -> set[tuple[str, int]]:
    """The lines of a place: `course 20/03 l.456; 23/03 l.460-462` are lines 456 and 460 to 462 of the course."""
    lines: set[tuple[str, int]] = set()
    source = ""
    for part in re.split(r"[;,] ", place):
        source = next((name for name in ledger.SOURCES if part.startswith(name)), source)
        for first, last in re.findall(r"(?:l\.|, )(\d+)(?:-(\d+))?", part):
            lines |= {(source, line) for line in range(int(first), int(last or first) + 1)}
    return lines


def test_every_slip_in_the_ledger_is_among_the_errata() -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8").split("## What looks like")[0]
    places = [line.split(" | ")[0].strip("| ") for line in page.splitlines() if line.startswith("| ")]
    errata = set().union(*map(lines_of, places))
    slips = [item["place"] for item in ITEMS if item["verdict"] == "is a slip"]
    assert len(slips) >= 40
    assert [place for place in slips if not lines_of(place) & errata] == []
