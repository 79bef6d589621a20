from importlib.metadata import EntryPoint

import pytest

from clearformer import registry
from clearformer.errors import ConfigError
from clearformer.models import MODELS
from clearformer.text.tokenizers import TOKENIZERS

KINDS = {kind: registry.load(where) for kind, where in registry.TABLES.items()}


@pytest.fixture(autouse=True)
def own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    for table in KINDS.values():
        monkeypatch.setattr(table, "added", {})


SHIPPED = [(kind, name) for kind, table in KINDS.items() for name in table.shipped]


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_everything_shipped_is_there(kind: str, name: str) -> None:
    assert callable(KINDS[kind].resolve(name))
    assert name in KINDS[kind].names()


def test_names_are_sorted() -> None:
    registry.register("model", "aardvark", object())
    names = MODELS.names()
    assert names == sorted(names)
    assert names[0] == "aardvark"
    assert "transformer" in names


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        MODELS.resolve("transfomer")
    assert str(caught.value) == "there is no model called `transfomer`\nhint: did you mean `transformer`?"


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(ConfigError) as caught:
        TOKENIZERS.resolve("xyz")
    assert caught.value.hint is not None
    assert "bpe, byte-bpe, char" in caught.value.hint


def test_a_thing_of_the_users_joins_and_is_returned() -> None:
    class Mine:
        pass

    assert registry.register("model", "mine", Mine) is Mine
    assert MODELS.resolve("mine") is Mine
    assert registry.register("model", "mine", Mine) is Mine  # a module read twice is no conflict


@pytest.mark.parametrize(
    ("kind", "hint"), [("modell", "did you mean `model`?"), ("metric", "choose one of logger, model, objective, ")]
)
def test_a_kind_that_nobody_asks_for_is_refused(kind: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot register a `{kind}`: unknown kind") as caught:
        registry.register(kind, "mine", object())
    assert str(caught.value.hint).startswith(hint)


@pytest.mark.parametrize("name", ["transformer", "mine"])
def test_a_taken_name_is_refused(name: str) -> None:
    registry.register("model", "mine", object())
    with pytest.raises(ConfigError, match=f"already a model called `{name}`"):
        registry.register("model", name, object())


def test_shipped_and_registered_names_are_known_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the metadata of all installed packages takes longer than reading a recipe."""

    def search(**_: str) -> list[EntryPoint]:
        raise AssertionError("searched the installed packages")

    registry.register("model", "mine", object())
    monkeypatch.setattr(registry, "entry_points", search)
    assert "transformer" in MODELS
    assert "mine" in MODELS
    with pytest.raises(AssertionError, match="searched"):
        assert "other" not in MODELS


def test_entry_points_join_too(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("wordcount", "collections:Counter", "clearformer.tokenizer")

    def installed(group: str, name: str | None = None) -> list[EntryPoint]:
        return [point] if group == point.group and name in (None, point.name) else []

    monkeypatch.setattr(registry, "entry_points", installed)
    assert "wordcount" in TOKENIZERS.names()
    assert "wordcount" not in MODELS.names()
    assert "wordcount" in TOKENIZERS
    assert "wordcount" not in MODELS
    assert TOKENIZERS.resolve("wordcount")("aa") == {"a": 2}
