"""`clearformer card`: what the hub reads, what people read, and that nothing private is in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CliCall = Callable[..., Any]


def test_a_card_of_a_run(cli: CliCall, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "card.md"
    result = cli(
        "card", run, "--out", out, "--license", "cc-by-4.0", "--language", "en, fr", "--title", "Mine: 'small'"
    )
    assert (result.code, result.out) == (0, f"{out}\n")
    text = out.read_text()
    assert "A translator: `transformer` with " in text
    assert "clearformer translate --model" in text
    assert str(run.parent) not in text  # no folder of this machine
    assert "| bleu |" in text
    assert "There is no test data" not in text


def test_the_hub_reads_it(cli: CliCall, run: Path, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    out = tmp_path / "card.md"
    title = 'A "name": with # signs'
    assert cli("card", run, "--out", out, "--license", "apache-2.0", "--language", "en,fr", "--title", title).code == 0
    data = hub.ModelCard.load(out).data
    assert (data.license, data.language, data.library_name) == ("apache-2.0", ["en", "fr"], "clearformer")
    assert (data.pipeline_tag, data.model_name) == ("translation", title)
    scores = {result.metric_type: result.metric_value for result in data.eval_results}
    test = json.loads((run / "report.json").read_text())["test"]
    assert scores == {name: float(f"{value:.4g}") for name, value in test.items() if isinstance(value, float)}


def test_the_bundled_model_has_one_too(cli: CliCall, tmp_path: Path) -> None:
    out = tmp_path / "card.md"
    assert cli("card", "en-fr-small", "--out", out).code == 0
    assert "4 encoder layers, 3 decoder layers" in out.read_text()


def test_an_existing_file_is_kept(cli: CliCall, copy: Path) -> None:
    (copy / "README.md").write_text("mine")
    result = cli("card", copy)
    assert result.code == 1
    assert "--overwrite" in result.err
    assert (copy / "README.md").read_text() == "mine"
    assert cli("card", copy, "--overwrite").code == 0
    assert (copy / "README.md").read_text().startswith("---\n")
