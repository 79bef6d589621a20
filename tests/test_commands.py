"""What the pages of docs and README name exists: files and headings that links lead to, verbs, options and keys."""

import contextlib
import importlib
import pkgutil
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from clearformer.cli import VERBS, Commands, app
from clearformer.config import Config
from clearformer.recipe import Recipe

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
LINKING = sorted({*PAGES, *ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("benchmarks/*.md")})
LINK = re.compile(r"(?<!\\)\]\(([^)\s:#]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"--[a-z][\w-]*")
SETTING = re.compile(r"--set[ =]'?([\w.]+)=")
NOT_OURS = {
    "--signal=TERM@300": "an option of Slurm",
    "--scale 0.2": "an option of benchmarks/smooth_classes.py",
    "--learning-rate": "a word that a hint corrects",
}


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    return {slug(title) for title in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)}


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for target, anchor in LINK.findall(FENCE.sub("", text)):
        file = page.parent / target if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


def test_a_broken_link_would_be_noticed() -> None:
    page = ROOT / "docs" / "handbook" / "attention.md"
    assert broken_links(page, "[a](transformer.md) [b](transformer.md#positions) [c](#order)") == []
    assert broken_links(page, "[a](nowhere.md) [b](transformer.md#nowhere)") == ["nowhere.md", "transformer.md#nowhere"]


@cache
def options_of(verb: str) -> frozenset[str]:
    """The options of a verb, with those that depend on plugins, and of the program itself."""
    command = Commands()[verb]
    root: Any = typer.main.get_command(app)
    parameters = command.get_params(click.Context(command)) + root.get_params(click.Context(root))
    return frozenset(name for param in parameters for name in (*param.opts, *param.secondary_opts))


@cache
def all_options() -> frozenset[str]:
    return frozenset().union(*map(options_of, VERBS))


@cache
def field_names() -> frozenset[str]:
    """The keys of every table of a recipe."""
    for room in ("models", "objectives", "data", "training", "text", "tuning", "tasks"):
        package = importlib.import_module(f"clearformer.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"clearformer.{room}."):
            with contextlib.suppress(ModuleNotFoundError):  # of an extra, or of a GPU
                importlib.import_module(module.name)
    classes: list[Any] = [Config]
    names: set[str] = set()
    while classes:
        one = classes.pop()
        names |= set(one.model_fields)
        classes += one.__subclasses__()
    return frozenset(names)


def commands(page: Path) -> list[str]:
    """The commands of a page that a reader can type, without their comments: inline, and in blocks."""
    text = page.read_text("utf-8")
    if page.name.startswith("from-"):  # the first column has the commands of another program
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
    found = [code.replace("\n", " ") for code in INLINE.findall(FENCE.sub("", text))]
    for block in FENCE.findall(text):
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()[1:-1]
        found += [line.removeprefix("$ ").partition(" #")[0] for line in lines if re.match(r"(\$ )?clearformer ", line)]
    return found


def mistakes(command: str) -> list[str]:
    """Return the verbs, options and keys of a command that do not exist."""
    if match := re.match(r"clearformer (?:--verify )?([\w-]+)", command):
        verb = match[1]
        if verb not in VERBS:
            return [] if verb.isupper() else [f"no verb `{verb}`"]  # VERB stands for any
        known = options_of(verb)
    elif re.match(r"--[a-z]", command) or command.split(" ", 1)[0] in VERBS:
        known = all_options()
    else:
        return []
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that the page leaves open
        words = command.split()
    wrong = [
        f"no option `{name}`"
        for word in words
        for name in OPTION.findall(word)[:1]
        if word.startswith("--") and name not in known
    ]
    for path in SETTING.findall(command):
        table, *keys = path.split(".")
        known_keys = path.isupper() or (table in Recipe.__dataclass_fields__ and field_names().issuperset(keys))
        wrong += [] if known_keys else [f"no key `{path}`"]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_verbs_options_and_keys_that_exist(page: Path) -> None:
    there = [command for command in commands(page) if command not in NOT_OURS]
    wrong = {command: mistakes(command) for command in there if mistakes(command)}
    assert wrong == {}


def test_a_wrong_command_would_be_noticed() -> None:
    assert mistakes("clearformer train --pairs train.tsv --set model.n_layers=2") == []
    assert mistakes("clearformer trian --pairs train.tsv") == ["no verb `trian`"]
    assert mistakes("clearformer translate --pairs train.tsv") == ["no option `--pairs`"]
    assert mistakes("train --beams 4") == ["no option `--beams`"]
    assert mistakes("--set model.n_layerz=2") == ["no key `model.n_layerz`"]
    assert mistakes("--set modl.n_layers=2") == ["no key `modl.n_layers`"]


def test_there_are_commands() -> None:
    assert sum(command.startswith("clearformer ") for page in PAGES for command in commands(page)) > 300
