import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CliCall = Callable[..., Any]


def test_a_comparison_that_is_not_there(cli: CliCall, tmp_path: Path) -> None:
    code, out, err = cli("compare", tmp_path / "none.toml")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {tmp_path / 'none.toml'} cannot be read: No such file")


@pytest.mark.slow
def test_a_table_and_a_page(cli: CliCall, small: list[str], corpus: Path, tmp_path: Path) -> None:
    """On pairs of one's own, by tokens."""
    (tmp_path / "a.toml").write_text(f'[data]\ntrain = {{path = "{corpus}"}}\ntest = {{path = "{corpus}"}}\n')
    settings = json.dumps([*small[1::2], "text.min_frequency=1", "model.n_heads=2"])
    (tmp_path / "c.toml").write_text(f"settings = {settings}\nbudget.tokens = 3000\ncontenders.a.recipe = 'a.toml'\n")
    code, out, err = cli("compare", tmp_path / "c.toml", "--out", tmp_path / "out", "--device", "cpu")
    assert code == 0, err
    header, row, page = out.splitlines()
    assert header.split() == ["bleu", "parameters", "tokens/s", "memory,", "MB", "seconds"]
    assert row.split()[0] == "a"
    assert Path(page).read_text().startswith("<!DOCTYPE html>")
    results = json.loads(cli("compare", tmp_path / "c.toml", "--out", tmp_path / "out", "--json").out)
    assert 3000 <= results["runs"]["a"][0]["count"] < 4000
