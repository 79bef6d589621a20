from pathlib import Path

import pytest

from clearformer.comparison.settings import Budget, CompareConfig
from clearformer.errors import ConfigError

ROOT = Path(__file__).parent.parent.parent
SHIPPED = sorted((ROOT / "recipes").glob("compare-*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_comparison_that_ships_is_whole(path: Path) -> None:
    config = CompareConfig.read(path)
    recipes = config.recipes(path.parent, Path("corpus"))
    assert len(recipes) == len(config.seeds) * len(config.contenders) > 1
    assert path.read_text().startswith("# ")


def test_a_contender_has_the_budget_the_data_and_settings_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('[data]\ntrain = {path = "own.tsv"}\n[model]\nn_heads = 2\nd_model = 28\n')
    (tmp_path / "x.toml").write_text(
        'seeds = [3, 5]\nbundled = 100\nsettings = ["train.ema=0", "model.dropout=0.3"]\n[budget]\ntokens = 7000\n'
        '[contenders]\na = {recipe = "base.toml"}\nb = {recipe = "base.toml", settings = ["model.dropout=0.2"]}\n'
    )
    recipes = CompareConfig.read(tmp_path / "x.toml").recipes(tmp_path, tmp_path / "corpus")
    assert list(recipes) == [("a", 3), ("b", 3), ("a", 5), ("b", 5)]
    a, b = recipes["a", 5], recipes["b", 5]
    assert (a.train.seed, a.train.max_tokens, a.train.ema) == (5, 7000, 0)
    assert (a.model.dropout, b.model.dropout) == (0.3, 0.2)
    assert a.data.source("train").path == tmp_path / "corpus" / "train.tsv"
    assert a.data.source("test").path == tmp_path / "corpus" / "test.tsv"


def test_a_budget_as_settings() -> None:
    assert Budget(steps=11).settings() == ["train.steps=11"]
    assert Budget(seconds=2.5).settings()[1] == "train.max_seconds=2.5"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("budget = {}\ncontenders.a.recipe = 'a.toml'", r"give exactly one of steps, tokens and seconds"),
        (
            "budget = {steps = 1, tokens = 2}\ncontenders.a.recipe = 'a.toml'",
            r"give exactly one of steps, tokens and seconds",
        ),
        ("budget.steps = 1\ncontenders.'a/b'.recipe = 'a.toml'", r"a/b"),
        ("budget.steps = 1\n[contenders]", r"contenders"),
        (
            "budget.steps = 1\nseed = 3\ncontenders.a.recipe = 'a.toml'",
            r"unknown key `seed`\nhint: did you mean `seeds`",
        ),
        ("budget.steps = ", r"not valid TOML"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        CompareConfig.read(tmp_path / "x.toml")
