"""What a sweep varies: values, ranges, and the combinations of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.comparison.space import Range, Space, as_settings, shown, split
from clearformer.errors import ConfigError
from clearformer.tables import parse_setting


def test_values_have_their_types() -> None:
    space = Space.parse(["optim.lr=0.001,3e-3", "model.residual=pre,post", "optim.betas=[0.9,0.98],[0.9,0.999]"])
    assert space.choices == {
        "optim.lr": [0.001, 0.003],
        "model.residual": ["pre", "post"],
        "optim.betas": [[0.9, 0.98], [0.9, 0.999]],
    }


def test_a_grid_has_every_combination_after_the_default() -> None:
    trials = Space.parse(["a.x=1,2,3", "a.y=true,false"]).grid()
    assert trials[0] == {}
    assert len(trials) == 7
    assert {(trial["a.x"], trial["a.y"]) for trial in trials[1:]} == {(x, y) for x in (1, 2, 3) for y in (True, False)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.001..0.1", Range(0.001, 0.1)), ("2..6", Range(2, 6)), ("-1..1e-1", Range(-1, 0.1)), (" 1 .. 2 ", Range(1, 2))],
)
def test_ranges(text: str, expected: Range) -> None:
    assert Space.parse([f"a.x={text}"]).choices == {"a.x": expected}


def test_draws_are_inside_their_range_and_the_same_for_a_seed() -> None:
    space = Space.parse(["a.x=0.001..0.1", "a.n=2..4", "a.s=one,two"])
    trials = space.random(30, seed=5)
    assert trials == space.random(30, seed=5)
    assert trials != space.random(30, seed=6)
    assert trials[0] == {}
    assert len(trials) == 30
    assert all(0.001 <= trial["a.x"] <= 0.1 for trial in trials[1:])
    assert {trial["a.n"] for trial in trials[1:]} == {2, 3, 4}
    below = sum(trial["a.x"] < 0.01 for trial in trials[1:])
    assert 7 <= below <= 22  # half of them, on a log scale; on a linear one, a tenth


def test_random_search_ends_when_all_combinations_are_drawn() -> None:
    assert len(Space.parse(["a.x=1,2", "a.y=3,4"]).random(50, seed=0)) == 5


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "no setting to vary"),
        (["lr=1,2"], "expected table.key=values"),
        (["optim.lr"], "expected table.key=values"),
        (["a.x=1", "a.x=2"], "given twice"),
        (["a.x=3..1"], "smaller to a larger"),
        (["a.x=,"], "no value to try"),
    ],
)
def test_mistakes(entries: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Space.parse(entries)


def test_a_grid_of_a_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"range, which a grid cannot cover\nhint: list its values"):
        Space.parse(["a.x=1..2"]).grid()
    with pytest.raises(ConfigError, match=r"1,030,301 combinations"):
        Space({f"a.{name}": list(range(101)) for name in "xyz"}).grid()


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


@given(VALUES)
def test_a_trial_as_settings_keeps_its_values(value: object) -> None:
    (setting,) = as_settings({"a.x": value})
    assert parse_setting(setting) == (["a", "x"], value)


def test_splitting() -> None:
    assert split("1, [2, 3], 'a,b' ,") == ["1", " [2, 3]", " 'a,b' "]


def test_in_words() -> None:
    assert shown({}) == "default"
    assert shown({"optim.lr": 0.1, "model.kind": "gpt"}) == 'optim.lr = 0.1, model.kind = "gpt"'
