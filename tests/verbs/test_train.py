"""A training as a Python function: what is refused before it begins, and where it goes."""

from pathlib import Path

import pytest

import clearformer
from clearformer.errors import ClearformerError, ConfigError
from clearformer.verbs.train import default_folder


def test_a_missing_test_set_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b c\td e f\n" * 30)
    with pytest.raises(ClearformerError, match=r"no-test\.tsv does not exist"):
        clearformer.train(pairs=tmp_path / "pairs.tsv", test=tmp_path / "no-test.tsv", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_runs_are_named_after_data_and_model(tmp_path: Path) -> None:
    for path in (tmp_path / "fra.en", tmp_path / "fra.fr"):
        path.write_text("a b c\n" * 30)
    recipe = clearformer.plan(pairs=(tmp_path / "fra.en", tmp_path / "fra.fr"), model="transformer-small")
    assert default_folder(recipe).parent == Path("runs")
    assert default_folder(recipe).name.startswith("fra-transformer-small-2")
    assert default_folder(recipe, "m30k").name.startswith("fra-m30k-2")


def test_what_cannot_change_is_not_asked_for_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--pairs cannot be combined with --resume: the run continues with its saved"):
        clearformer.train(pairs="new.tsv", resume=True, out=tmp_path)
