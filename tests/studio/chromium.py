"""Where Chromium and Playwright are. Without them, tests in a browser are skipped, and fail in `make test-browser`."""

import os
import shutil
from importlib.util import find_spec
from typing import NoReturn

import pytest


def find_chromium() -> str:
    """Return the path of Chromium: $CHROMIUM, or that of the system."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        missing("there is no Chromium: apt-get install chromium, or set CHROMIUM to its path")
    return path


def require_playwright() -> None:
    if find_spec("playwright") is None:
        missing("there is no Playwright: pip install 'clearformer[browser]'")


def missing(reason: str) -> NoReturn:
    if os.environ.get("CLEARFORMER_BROWSER") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
