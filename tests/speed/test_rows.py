"""The rows name functions that exist and take their options; names and patterns choose among them."""

import inspect
from importlib import import_module

import pytest

from clearformer.errors import ConfigError
from clearformer.speed.context import Context
from clearformer.speed.rows import ROWS, Engine, Row, chosen

ENGINES = [pytest.param(row, engine, id=f"{row.name}-{engine.name}") for row in ROWS for engine in row.engines]


@pytest.mark.parametrize(("row", "engine"), ENGINES)
def test_a_call_is_a_function_that_takes_its_options(row: Row, engine: Engine) -> None:
    module, function = engine.call.split(":")
    signature = inspect.signature(getattr(import_module(module), function))
    signature.bind(Context("", row.name, 0, "cpu", 1, True), **engine.options)


def test_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names) > 15
    for row in ROWS:
        assert row.here.name == "here"
        assert len({engine.name for engine in row.engines}) == len(row.engines)


def test_both_sides_of_decoding_have_the_same_work() -> None:
    for row in ROWS:
        if "decode" in row.name:
            for peer in row.peers:
                ours, theirs = ({**side.options, "precision": "", "engine": ""} for side in (row.here, peer))
                assert theirs == ours


def test_rows_are_chosen_by_name_and_pattern() -> None:
    assert [row.name for row in chosen(["prepare-pairs", "decode-gpt2-*"], has_gpu=True)] == [
        "decode-gpt2-1",
        "decode-gpt2-64",
        "prepare-pairs",
    ]
    assert not [row.name for row in chosen([], has_gpu=True) if row.device == "cpu" and row.unit == "tokens/s"]
    assert chosen([], has_gpu=False) == list(ROWS)


def test_an_unknown_name_has_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"there is no such row\nhint: did you mean `decode-gpt2-64`\?"):
        chosen(["decode-gpt-64"], has_gpu=True)
