"""The Python twins of the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

import clearformer
from clearformer import verbs
from clearformer.errors import ClearformerError, ConfigError

PACKAGE = Path(clearformer.__file__).parent


def test_no_module_hides_a_function() -> None:
    """`import clearformer.load` would put the module where the function is; so there is no such module."""
    functions = {name for name in clearformer.__all__ if callable(getattr(clearformer, name))}
    assert {"load", "train", "finetune", "evaluate", "inspect", "doctor", "plan"} <= functions
    assert not functions & {path.stem for path in PACKAGE.iterdir()}


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, clearformer; print(*({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        clearformer.trian  # noqa: B018


def test_a_missing_test_set_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b c\td e f\n" * 30)
    with pytest.raises(ClearformerError, match=r"no-test\.tsv does not exist"):
        clearformer.train(pairs=tmp_path / "pairs.tsv", test=tmp_path / "no-test.tsv", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_runs_are_named_after_data_and_model(tmp_path: Path) -> None:
    for path in (tmp_path / "fra.en", tmp_path / "fra.fr"):
        path.write_text("a b c\n" * 30)
    recipe = clearformer.plan(pairs=(tmp_path / "fra.en", tmp_path / "fra.fr"), model="transformer-small")
    assert verbs.default_folder(recipe).parent == Path("runs")
    assert verbs.default_folder(recipe).name.startswith("fra-transformer-small-2")
    assert verbs.default_folder(recipe, "m30k").name.startswith("fra-m30k-2")


def test_what_cannot_change_is_not_asked_for_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="resumed as it is: --pairs cannot be given anew"):
        verbs.train(pairs="new.tsv", resume=True, out=tmp_path)
