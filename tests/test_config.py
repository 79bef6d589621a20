from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError

from clearformer.config import Config
from clearformer.errors import ClearformerError, ConfigError


class Inner(Config):
    base: float = 10000.0
    kind: Literal["sine", "none"] = "sine"


class Outer(Config):
    n_heads: int = Field(7, gt=0, description="a whole number of heads")
    name: str
    inner: Inner = Inner()

    def model_post_init(self, _: object) -> None:
        if self.n_heads == 13:
            raise ValueError("thirteen heads are unlucky")


def test_a_validator_is_built_on_first_use() -> None:
    """Most tables that a command imports are never validated."""

    class Late(Config):
        steps: int = 7

    assert not Late.__pydantic_complete__
    assert Late.parse({"steps": 5}).steps == 5
    assert Late.__pydantic_complete__


def complaint(table: dict[str, Any], where: str = "copy.toml: [model]") -> str:
    with pytest.raises(ConfigError) as caught:
        Outer.parse(table, where)
    return str(caught.value)


def test_a_table_is_parsed() -> None:
    outer = Outer.parse({"name": "a", "inner": {"base": 3}}, "copy.toml: [model]")
    assert (outer.n_heads, outer.name, outer.inner.base, outer.inner.kind) == (7, "a", 3.0, "sine")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"name": "a", "n_head": 3}, "copy.toml: [model]: unknown key `n_head`\nhint: did you mean `n_heads`?"),
        ({"name": "a", "xyz": 3}, "copy.toml: [model]: unknown key `xyz`\nhint: choose one of inner, n_heads, name"),
        ({}, "copy.toml: [model]: missing key `name`"),
        (
            {"name": "a", "inner": {"bass": 3}},
            "copy.toml: [model.inner]: unknown key `bass`\nhint: did you mean `base`?",
        ),
        (
            {"name": "a", "n_heads": 0},
            "copy.toml: [model] n_heads = 0 is too small: it must be greater than 0\n"
            "hint: a whole number of heads (for example n_heads = 7)",
        ),
        (
            {"name": "a", "inner": {"kind": "sin"}},
            "copy.toml: [model.inner] kind = 'sin' is not 'sine' or 'none'\nhint: did you mean `sine`?",
        ),
        (
            {"name": "a", "n_heads": "abc"},
            "copy.toml: [model] n_heads = 'abc' is not a whole number\n"
            "hint: a whole number of heads (for example n_heads = 7)",
        ),
        ({"name": "a", "n_heads": 13}, "copy.toml: [model]: thirteen heads are unlucky"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_hint(table: dict[str, Any], expected: str) -> None:
    assert complaint(table) == expected


def test_a_place_that_is_no_table_gets_one() -> None:
    message = complaint({"name": "a", "inner": {"bass": 3}}, "copy.toml")
    assert message.startswith("copy.toml: [inner]: unknown key `bass`")


def test_it_is_an_error_of_ours() -> None:
    with pytest.raises(ClearformerError) as caught:
        Outer.parse({"name": "a", "n_head": 3}, "here")
    assert caught.value.message == "here: unknown key `n_head`"
    assert caught.value.hint == "did you mean `n_heads`?"


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Outer(name="a").n_heads = 5  # type: ignore[misc]


def test_a_changed_copy_is_validated_and_keeps_the_rest() -> None:
    first = Outer(name="a", inner=Inner(base=3))
    second = first.changed(n_heads=5)
    assert (first.n_heads, second.n_heads, second.name, second.inner) == (7, 5, "a", first.inner)
    with pytest.raises(ConfigError, match=r"^n_heads = -1 is too small: it must be greater than 0"):
        first.changed(n_heads=-1)
    with pytest.raises(ConfigError, match=r"^unknown key `n_head`"):
        first.changed(n_head=3)
