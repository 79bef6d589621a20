"""Engines that need no library: small functions in a module that the worker processes import."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearformer.speed.context import Context
from clearformer.speed.rows import Engine, Row

MODULE = """
import subprocess, sys, time
from pathlib import Path

def steady(context, name, values, **more):
    with open(Path(context.work) / "turns.txt", "a") as file:
        file.write(f"{name}\\n")
    return {"values": values, **more}

def by_threads(context, name, values):
    return {"values": [value / context.threads for value in values]}

def broken(context, name):
    raise ValueError("the frobnicator is missing")

def endless(context, name):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (Path(context.work) / "child").write_text(str(child.pid))
    time.sleep(600)
"""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    (tmp_path / "pretend.py").write_text(MODULE, encoding="utf-8")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    work = tmp_path / "work"
    work.mkdir()
    return Context(str(work), "", 0, "cpu", 2, is_quick=True)


@pytest.fixture
def engine() -> Callable[..., Engine]:
    def build(name: str, function: str = "steady", packages: tuple[str, ...] = (), **options: Any) -> Engine:
        title = "clearformer" if name == "here" else name.title()
        return Engine(name, title, f"pretend:{function}", {"name": name, **options}, packages)

    return build


@pytest.fixture
def row(engine: Callable[..., Engine]) -> Callable[..., Row]:
    """A row whose sides return 30, 20, 40 and 10, 10 per second, unless it is given others."""

    def build(name: str = "work", **changes: Any) -> Row:
        peer = engine("other", values=[10.0, 10.0])
        return replace(Row(name, "some work", "cpu", engine("here", values=[30.0, 20.0, 40.0]), (peer,)), **changes)

    return build
