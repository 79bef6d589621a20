"""What the tests of all pages share: Playwright's assertions, opening a page, and saving what it shows.

The tests that import this are skipped without Playwright (`make test-browser` installs it).
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)  # a busy machine may take long for its first answer


def open_page(page: Any, url: str, route: str) -> None:
    page.goto(f"{url}#/{route}")


def download(page: Any, button: str | re.Pattern[str]) -> str:
    with page.expect_download() as info:
        page.get_by_role("button", name=button).click()
    return Path(info.value.path()).read_text(encoding="utf-8")


def params(page: Any) -> dict[str, str]:
    return {name: value[0] for name, value in parse_qs(page.url.partition("?")[2]).items()}


def choose(page: Any, file: dict[str, Any]) -> None:
    page.locator("input[type=file]").set_input_files(file)
    expect(page.locator(".filename")).to_have_text(file["name"])


def saved(page: Any, title: str, kind: str = "save numbers as JSON") -> str:
    with page.expect_download() as info:
        page.get_by_role("button", name=re.compile(f"^{title}.*{kind}")).click()
    return Path(info.value.path()).read_text(encoding="utf-8")
