"""Names of other libraries lead to ours, by meaning; and every name that a hint gives exists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel

import clearformer
from clearformer.cli import VERBS, app
from clearformer.errors import ConfigError, suggest
from clearformer.models import MODELS
from clearformer.recipe import OPTIONAL, SECTIONS
from clearformer.synonyms import OPTIONS, SETTINGS, TABLES, simple
from clearformer.tasks import TASKS

ROOT: Any = typer.main.get_command(app)


def schemas(table: str) -> list[type[BaseModel]]:
    """All classes that a table of a recipe may be validated by."""
    tasks = [TASKS.resolve(name) for name in TASKS.names()]
    several: dict[str, Callable[[], list[Any]]] = {
        "model": lambda: [MODELS.resolve(name).Config for name in MODELS.names()],
        "objective": lambda: [task.objective.Config for task in tasks],
        "data": lambda: [task.data for task in tasks],
    }
    return several[table]() if table in several else [{**SECTIONS, **OPTIONAL}[table]]


def has_key(schema: type[BaseModel], keys: list[str]) -> bool:
    field = schema.model_fields.get(keys[0])
    if field is None or len(keys) == 1:
        return field is not None
    inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
    return any(has_key(kind, keys[1:]) for kind in inner if issubclass(kind, BaseModel))


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_exists_and_no_synonym_is_a_key_beside_it(setting: str) -> None:
    table, *keys = setting.split(".")
    matches = [schema for schema in schemas(table) if has_key(schema, keys)]
    assert matches
    if len(keys) == 1:  # a word that is a key of the same table would never be looked up
        for schema in matches:
            assert not {*SETTINGS[setting].split()} & schema.model_fields.keys()


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_exists(option: str) -> None:
    commands = [ROOT.commands[verb] for verb in VERBS]
    known = [{*param.opts} for command in commands for param in command.get_params(typer.Context(command))]
    name = option.split()[0]
    assert any(name in names for names in known)


def test_tables_exist_and_words_are_simple() -> None:
    assert {*TABLES} <= {*SECTIONS, *OPTIONAL, "model", "objective", "data"}
    for table in (SETTINGS, TABLES, OPTIONS):
        assert all(word == simple(word) for words in table.values() for word in words.split())


@pytest.mark.parametrize(
    ("option", "expected"),
    {
        "--learning-rate": "`--lr`",
        "--learning_rate": "`--lr`",
        "--num-epochs": "`--epochs`",
        "--num_train_epochs": "`--epochs`",
        "--max-steps": "`--steps`",
        "--max-update": "`--steps`",
        "--max_epochs": "`--epochs`",
        "--batch": "`--batch-size`",
        "--bs": "`--batch-size`",
        "--batch_size": "`--batch-size`",
        "--per_device_train_batch_size": "`--batch-size`",
        "--gpu": "`--device cuda`",
        "--fp16": "`--precision bfloat16`",
        "--output": "`--out`",
        "--output-dir": "`--out`",
        "-o": "`--out`",
        "--dataset": "`--pairs`, `--text`, `--labels`, `--images` or `--recordings`",
        "--validation_file": "`--valid`",
        "--model_name_or_path": "`--model`",
        "--warmup-updates": "`--set schedule.warmup=…`",
        "--gradient_accumulation_steps": "`--set train.accumulation=…`",
        "--dropout": "`--set model.dropout=…`",
        "--step": "`--steps`",
    }.items(),
)
def test_a_foreign_option_leads_to_ours(capsys: pytest.CaptureFixture[str], option: str, expected: str) -> None:
    for verb in ("train", "finetune"):
        with pytest.raises(SystemExit) as stop:
            app([verb, option, "3"], prog_name="clearformer")
        assert stop.value.code == 2
        assert f"No such option: {option}\nhint: did you mean {expected}?\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("translate", "--num_beams", "3"), "`--beam`"),
        (("translate", "--file", "notes.txt"), "`--input`"),
        (("generate", "--max-new-tokens", "3"), "`--max-new`"),
        (("classify", "--output_file", "x.csv"), "`--out`"),
    ],
)
def test_commands_for_inference_have_their_own(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(SystemExit):
        app(list(arguments), prog_name="clearformer")
    assert f"hint: did you mean {expected}?\n" in capsys.readouterr().err


def test_an_option_like_no_other_has_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["translate", "--qqq"], prog_name="clearformer")
    assert capsys.readouterr().err.endswith("No such option: --qqq\n")


@pytest.mark.parametrize(
    ("setting", "hint"),
    {
        "optim.learning_rate": "did you mean `lr`?",
        "train.epoch": "did you mean `epochs`?",
        "train.num_train_epochs": "did you mean `epochs`?",
        "train.batch_size": "did you mean `tokens`?",
        "train.learning_rate": "did you mean `optim.lr`?",
        "train.lr": "did you mean `optim.lr`?",
        "optim.warmup_steps": "did you mean `schedule.warmup`?",
        "model.hidden_size": "did you mean `d_model`?",
        "model.num_layers": "did you mean `n_encoder_layers` or `n_decoder_layers`?",
        "model.num_heads": "did you mean `n_heads`?",
        "model.vocab_size": "did you mean `text.vocab_size`?",
        "model.d_modl": "did you mean `d_model`?",
        "trainer.max_epochs": "did you mean `train`?",
        "tokenizer.vocab_size": "did you mean `text`?",
        "generation.num_beams": "did you mean `decode`?",
    }.items(),
)
def test_a_foreign_key_leads_to_ours(tmp_path: Path, setting: str, hint: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a dog\tun chien\n" * 9)
    with pytest.raises(ConfigError) as error:
        clearformer.plan(pairs=path, settings=[f"{setting}=3"], device="cpu")
    assert error.value.hint == hint


def test_the_keys_of_a_classifier_are_those_of_its_base(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("a dog\tx\na cat\ty\n" * 9)
    with pytest.raises(ConfigError) as error:
        clearformer.plan(labels=path, settings={"model.hidden_size": 3}, device="cpu")
    assert error.value.hint == "did you mean `base.d_model`?"


@pytest.mark.parametrize(
    ("keyword", "hint"),
    {
        "learning_rate": "did you mean `lr`?",
        "max_steps": "did you mean `steps`?",
        "output_dir": "did you mean `out`?",
        "gpu": "did you mean `device`?",
        "dataset": "did you mean `pairs`, `text`, `labels`, `images` or `recordings`?",
        "pair": "did you mean `pairs`?",
    }.items(),
)
def test_a_foreign_keyword_leads_to_ours(keyword: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        clearformer.train(**{keyword: "x"})
    assert error.value.hint == hint


def test_letters_decide_where_nothing_is_meant() -> None:
    assert suggest("transfomer", ["transformer", "gpt"]) == "did you mean `transformer`?"
    assert suggest("x", ["b", "a"]) == "choose one of a, b"
    assert suggest("x", ["b", "a"], ["c", "b"]) == "did you mean `b`?"
