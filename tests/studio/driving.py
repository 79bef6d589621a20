"""What the tests of all pages share: Playwright's assertions, opening a page, and saving what it shows.

The tests that import this are skipped without Playwright (`make test-browser` installs it).
"""

import re
from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)  # a busy machine may take long for its first answer


def open_page(page: Any, url: str, route: str) -> None:
    page.goto(f"{url}#/{route}")


def download(page: Any, button: str | re.Pattern[str]) -> str:
    with page.expect_download() as info:
        page.get_by_role("button", name=button).click()
    return Path(info.value.path()).read_text(encoding="utf-8")
