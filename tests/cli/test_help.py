"""--help: examples first, options in groups, every default shown; and the examples are valid commands."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from clearformer.cli import GROUPS, HELP, VERBS, app
from clearformer.cli.options import Command, DataCommand, parse_data
from clearformer.models import MODELS
from clearformer.models.build import preset_name, presets

CliCall = Callable[..., Any]
REPOSITORY = Path(__file__).parents[2]
ROOT: Any = typer.main.get_command(app)
UsageError = typer.BadParameter.__base__  # of click, or of the copy inside typer
EXAMPLES = [(verb, line) for verb in VERBS for line in ROOT.commands[verb].help.split("\n\n")[1].splitlines()[1:]]
EXAMPLES += [(line.split()[1], line) for line in HELP.split("\n\n")[1].splitlines()[1:]]


def parse(line: str) -> Any:
    """The context of an example line, without its comment and redirections. An invalid command is a UsageError."""
    words = shlex.split(line, comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ("<", ">", "|")), len(words))]
    assert words[0] == "clearformer"
    command = ROOT.commands[words[1]]
    with ROOT.make_context("clearformer", words[1:]) as root:
        context = command.make_context(words[1], words[2:], parent=root)
    if isinstance(command, DataCommand):
        parse_data({option.name: context.params[option.name] for option in command.data_options()})
    return context


def test_help_names_every_verb_under_its_group(cli: CliCall) -> None:
    out = cli("--help").out
    assert out.strip() == cli().err.strip()
    places = [re.search(rf"^(  )?{name}(:|  )", out, re.M) for group in GROUPS for name in (group, *GROUPS[group])]
    assert [place.start() for place in places if place] == sorted({place.start() for place in places if place})
    assert all(places)
    assert "..." not in out[out.index("\nTrain:") :]  # no summary is cut


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_layout(cli: CliCall, monkeypatch: pytest.MonkeyPatch, verb: str, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli(*verb.split(), "--help").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert re.fullmatch(r"[A-Z].*\.", lines[0])
    assert lines[2].startswith("Usage: clearformer")
    headings = [line for line in lines if re.fullmatch(r"[A-Z].*:", line)]
    assert headings[0] == "Examples:"
    assert len(headings) == len(set(headings)) > 2
    assert lines[-1].split()[:2] == ["-h,", "--help"]
    assert not [line for line in lines if "\N{NO-BREAK SPACE}" in line or "\N{NON-BREAKING HYPHEN}" in line]
    examples = lines[lines.index("Examples:") + 1 :]
    examples = examples[: examples.index("")]
    assert (2 if verb == "doctor" else 3) <= len(examples) <= 6
    assert all(line.startswith(f"  clearformer {verb}") for line in examples)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_a_group_and_a_default(cli: CliCall, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command = ROOT.commands[verb]
    assert isinstance(command, Command)
    out = cli(verb, "--help").out
    groups = re.findall(r"^([A-Z].*):\n((?:  .*\n)+)", out[out.index("Examples:") :], re.M)
    records = {
        record.split()[0].strip(","): (heading, record)
        for heading, body in groups[1:]
        for record in re.split(r"\n(?=  \S)", body.rstrip("\n"))
    }
    settings = {"help_option_names": ["-h", "--help"]}
    for param in command.get_params(typer.Context(command, **settings)):
        name = param.metavar if param.param_type_name == "argument" else min(param.opts, key=len)
        heading, record = records.pop(name)
        assert heading == "Arguments" or param.param_type_name == "option"
        is_flag = getattr(param, "is_flag", False)
        assert is_flag or re.search(r"\[(default: [^(]|.*required)|\(.*is required\)", f"{heading} {record}"), record
        assert not re.search(r"\bdefault\b(?!: )|default: None", record), record
    assert not records


@pytest.mark.parametrize(("verb", "line"), EXAMPLES)
def test_every_example_is_a_valid_command(verb: str, line: str) -> None:
    context = parse(line)
    assert context.command.name == verb
    recipe = context.params.get("recipe") or context.params.get("settings")
    if isinstance(recipe, Path) and recipe.parts[0] == "recipes":
        assert (REPOSITORY / recipe).is_file()
    if verb == "train" and (model := context.params["model"]):
        assert preset_name(model) in presets() or model in MODELS.names()


@pytest.mark.parametrize(
    "line",
    [
        "clearformer train --pair train.tsv",
        "clearformer train --pairs a.tsv,b.tsv,c.tsv",
        "clearformer translate --beam some text",
        "clearformer fill --model runs/ptb",
        "clearformer doctor now",
        "clearformer neighbours bike",
    ],
)
def test_an_invalid_example_would_be_noticed(line: str) -> None:
    from clearformer.errors import ConfigError

    with pytest.raises((UsageError, ConfigError)):
        parse(line)


def test_models_in_the_help_of_train_exist() -> None:
    text = " ".join(ROOT.commands["train"].help.split())
    named = [name for names in re.findall(r"For \w+: ([\w, ]+)\.", text) for name in names.split(", ")]
    assert {"bahdanau", "lstm", "textcnn", "resnet18", "vae"} <= set(named)
    assert all(name in presets() or name in MODELS.names() for name in named)


def test_the_bundled_model_in_the_help_of_translate_is_the_default(cli: CliCall) -> None:
    from clearformer.loading.folder import DEFAULT

    assert f"[default: {DEFAULT}]" in cli("translate", "--help").out


def test_the_commands_in_the_documentation_are_valid() -> None:
    text = (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")
    lines = [line for line in text.split("## More commands")[1].split("```")[1].splitlines() if "clearformer " in line]
    assert len(lines) > 10
    for line in lines:
        parse(line[line.index("clearformer ") :])
