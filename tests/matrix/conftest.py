import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from clearformer import fit
from clearformer.cli import app


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """clearformer ARGUMENTS, in this process."""

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            app([str(argument) for argument in arguments], prog_name="clearformer")
        return Result(int(stop.value.code or 0), *capsys.readouterr())

    return call
