"""What holds between tables, and what the command line may change about them."""

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import pytest

from clearformer.config import Config
from clearformer.errors import ConfigError
from clearformer.models import MODELS, build
from clearformer.models.build import letters, model_config, model_key, preset_name, presets
from clearformer.recipe import Recipe
from clearformer.tables import override

PAIRS: dict[str, Any] = {"train": {"path": "pairs.tsv"}}
RECIPES = Path(__file__).parent.parent / "recipes"
SIZES = {"d_model": 28, "d_ff": 46, "n_heads": 7}


def parse(**tables: Any) -> Recipe:
    return Recipe.parse({"data": PAIRS, **tables}, "x.toml")


def test_two_vocabularies_are_not_tied() -> None:
    """Equal sizes do not make them one: token 5 is another word on each side."""
    with pytest.raises(ConfigError, match=r"x\.toml: text\.shared = false learns two vocabularies") as caught:
        parse(text={"shared": False}, model={"source_vocab": 97, "target_vocab": 97})
    assert caught.value.hint == 'set model.share = "decoder", or text.shared = true'
    with pytest.raises(ConfigError, match=r'model\.share = "embeddings" ties'):
        parse(text={"shared": False}, model={"share": "embeddings"})
    for tables in (
        {"text": {"shared": False}, "model": {"share": "decoder"}},
        {"text": {"shared": False, "file": "tokenizer.json"}},  # one file is one vocabulary
        {"text": {"shared": True}},
    ):
        parse(**tables)


def test_pairs_that_are_kept_must_fit_the_model() -> None:
    """The longest pair and its EOS: 13 + 1 positions."""
    data = {**PAIRS, "filter": {"max_tokens": 13}}
    assert parse(data=data, model={"max_length": 14}).model.max_length == 14
    with pytest.raises(ConfigError, match=r"max_tokens = 13 is too large for model\.max_length = 13") as caught:
        parse(data=data, model={"max_length": 13})
    assert caught.value.hint == "set data.filter.max_tokens = 12, or model.max_length = 14"


class Bare(Config):
    kind: Literal["bare"] = "bare"


def test_a_model_without_such_keys_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS.added, "bare", type("Model", (), {"Config": Bare}))
    assert parse(text={"shared": False}, model={"kind": "bare"}).model == Bare()


def test_a_preset_that_is_set_wins_over_the_sizes_of_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(parse(model={**SIZES, "dropout": 0.25, "activation": "gelu"}).dump(), encoding="utf-8")
    for settings in (
        ["model.d_ff=97", "model.preset=transformer-tiny"],
        ["model.preset=transformer-tiny", "model.d_ff=97"],
    ):
        model = Recipe.read(path, settings).model
        expected = {**presets()["transformer-tiny"], "d_ff": 97, "dropout": 0.25, "activation": "gelu"}
        assert {key: getattr(model, key) for key in expected} == expected
        assert model.preset == "transformer-tiny"
    assert Recipe.read(path, ["model.d_ff=97"]).model.d_model == 28


def test_a_preset_inside_the_recipe_yields_to_the_keys_beside_it() -> None:
    model = parse(model={"preset": "transformer-tiny", "d_ff": 97}).model
    assert (model.d_ff, model.d_model) == (97, presets()["transformer-tiny"]["d_model"])


@pytest.mark.parametrize(
    ("name", "known"),
    [("vit-b16", "vit-b-16"), ("ViT-B16", "vit-b-16"), ("gpt-2", "gpt2"), ("ResNet-50", "resnet50")],
)
def test_a_preset_may_be_named_with_other_hyphens_and_capitals(name: str, known: str) -> None:
    """The recipe that is saved has the name of the file of presets."""
    assert preset_name(name) == known
    assert model_config(name) == model_config(known)
    assert model_config(name).preset == known
    data: dict[str, Any] = {"train": {"path": "x"}}
    recipe, expected = (Recipe.parse({"data": data, "model": {"preset": word}}, "x.toml") for word in (name, known))
    assert recipe.dump() == expected.dump()


def test_a_preset_that_is_set_wins_under_any_of_its_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(parse(model=SIZES).dump(), encoding="utf-8")
    settings = [f"model.{model_key('TransformerTiny')}=TransformerTiny"]
    model = Recipe.read(path, settings).model
    assert (model.preset, model.d_model) == ("transformer-tiny", presets()["transformer-tiny"]["d_model"])
    assert override({"model": {"preset": "gpt-2"}}, [])["model"]["preset"] == "gpt2"


def test_a_classifiers_base_may_be_named_so_too() -> None:
    base = parse(model={"kind": "classifier", "base": {"preset": "BERTbase"}}, objective={"kind": "classification"})
    assert base.model.base.preset == "bert-base"


def test_no_two_presets_differ_in_hyphens_and_case_alone() -> None:
    assert len({letters(name) for name in presets()}) == len(presets())


def test_a_kind_comes_before_a_preset_that_is_only_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [model_key(name) for name in ("gpt", "vit-b16", "vit", "bert", "bertbase")] == [
        "preset", "preset", "kind", "kind", "preset",
    ]  # fmt: skip
    monkeypatch.setitem(MODELS.added, "gpt-2", type("Model", (), {"Config": Bare}))
    assert model_key("gpt-2") == "kind"


def test_a_name_that_two_presets_could_mean_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "presets", lambda: {"a-bc": {}, "ab-c": {}, "abd": {}})
    assert [preset_name(name) for name in ("abc", "a-bc", "ab-d", "nothing")] == ["abc", "a-bc", "abd", "nothing"]


def test_an_unknown_preset_is_said() -> None:
    with pytest.raises(ConfigError, match="unknown preset `transformer-tinny`"):
        Recipe.parse(override({"data": PAIRS, "model": SIZES}, ["model.preset=transformer-tinny"]), "x.toml")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("train.steps", "--set train.steps: expected table.key=value"),
        ("steps=5", "--set steps=5: expected table.key=value"),
        ("model.preset.d_ff=5", "--set model.preset.d_ff=5: `preset` is a value, not a table"),
    ],
)
def test_settings_that_cannot_be_applied(setting: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        override({"model": {"preset": "transformer-tiny"}}, [setting])


@pytest.mark.parametrize(
    "path", sorted(set(RECIPES.glob("*.toml")) - set(RECIPES.glob("compare-*.toml"))), ids=lambda path: path.name
)
def test_every_recipe_is_whole_and_comes_back_from_what_it_writes(path: Path) -> None:
    recipe = Recipe.read(path)
    again = Recipe.parse(tomllib.loads(recipe.dump()), "the dump")
    assert again == recipe
    assert path.read_text().startswith("# ")


def test_a_model_from_elsewhere_has_an_origin_in_place_of_data() -> None:
    recipe = Recipe.parse({"origin": {"source": "gpt2"}, "model": {"kind": "gpt", "vocab": 13}}, "x.toml")
    assert recipe.data is None
    assert Recipe.parse(recipe.tables(), "x.toml") == recipe
    assert recipe.with_vocab(vocab=11).model.vocab == 13  # its table has rows to spare
    assert recipe.with_vocab(vocab=17).model.vocab == 17
    with pytest.raises(ConfigError, match=r"\[origin\]: missing key `source`"):
        Recipe.parse({"origin": {}}, "x.toml")
    with pytest.raises(ConfigError, match=r"missing table \[data\]"):
        Recipe.parse({"model": {"kind": "gpt"}}, "x.toml")
