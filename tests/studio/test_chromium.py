"""Tests in a browser are never skipped where they are asked for."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .chromium import find_chromium, require_playwright

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("check", [find_chromium, require_playwright])
def test_what_is_missing_fails_if_required(check: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.delenv("CLEARFORMER_BROWSER", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("tests.studio.chromium.find_spec", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="there is no"):
        check()
    monkeypatch.setenv("CLEARFORMER_BROWSER", "required")
    with pytest.raises(pytest.fail.Exception, match="there is no"):
        check()


def test_make_test_browser_requires_it() -> None:
    [line] = re.findall(r"^test-browser:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "CLEARFORMER_BROWSER=required" in line
    assert "make test-browser" in (ROOT / ".ci" / "run").read_text()
