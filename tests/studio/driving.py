"""What the tests of all pages share: Playwright's assertions, windows that watch a page, and saving what it shows.

The tests that import this are skipped without Playwright (`make test-browser` installs it).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ..serve.conditions import eventually
from .chromium import require_playwright

require_playwright()
expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)  # a busy machine may take long for its first answer


@contextmanager
def window(browser: Any, url: str, refused: str | None = None, **options: Any) -> Iterator[Any]:
    """A page in a new context. At the end, it must not have logged an error, or asked another server.

    `refused` is a pattern of the requests that the server is to refuse, which Chromium logs; there must be one.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options})
    page, home = context.new_page(), url.split("/?")[0]
    page.set_default_timeout(30_000)
    problems: list[str] = []
    answers: list[str] = []

    def said(message: Any) -> None:
        address = (message.location or {}).get("url", "")
        if refused and message.text.startswith("Failed to load resource") and re.search(refused, address):
            answers.append(address)
        elif message.type in ("error", "warning"):
            problems.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if not is_local(request.url, home) else None)
    try:
        yield page
    finally:
        context.close()
    assert problems == []
    assert bool(answers) is (refused is not None), "no request was refused"


def is_local(address: str, home: str) -> bool:
    return address.startswith((f"{home}/", f"blob:{home}/", "data:image/png;base64,"))  # images of figures


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


def duration(page: Any) -> float:
    """The seconds of the recording in the player, once the browser knows them."""
    known: list[float] = []

    def is_known() -> bool:
        known.append(page.evaluate("document.querySelector('audio').duration || 0"))
        return known[-1] > 0

    assert eventually(is_known)
    return known[-1]
