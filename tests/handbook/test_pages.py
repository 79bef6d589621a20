"""Every block of the handbook runs and prints what the page shows; its code is the code of the package."""

import re
from pathlib import Path

import pytest

from .blocks import Session, agrees, differences

ROOT = Path(__file__).parents[2]
HANDBOOK = ROOT / "docs" / "handbook"
PAGES = sorted(HANDBOOK.glob("*.md"))
CHAPTERS = [page for page in PAGES if page.name != "README.md" and not page.name.startswith("from-")]


@pytest.mark.handbook
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    wrong = differences(page.read_text(encoding="utf-8"), Session(tmp_path))
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_is_the_code_of_the_package(page: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("code_blocks", ROOT / "docs" / "code_blocks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    text = page.read_text(encoding="utf-8")
    assert module.refreshed(text) == text, "run python docs/code_blocks.py"


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_a_chapter_has_every_part(page: Path) -> None:
    """An equation, code of the package, something to run, a figure, and an exercise with its answer."""
    text = page.read_text(encoding="utf-8")
    for part in ("$$", "<!-- code: ", "```pycon", "```console", "![", "**Exercise", "<summary>Answer</summary>"):
        assert part in text, f"{page.name} has no {part}"


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_every_idea_is_an_equation_or_code_and_something_to_run(page: Path) -> None:
    """The exceptions put together what other sections explain."""
    whole = {"A translator of your own", "Try it", "Interrupted, and resumed", "From token to word"}
    ideas = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for idea in ideas:
        title = idea.partition("\n")[0]
        assert "```pycon" in idea or "```console" in idea, f"{title}: nothing to run"
        assert "$$" in idea or "<!-- code: " in idea or title in whole, f"{title}: neither equation nor code"
    text = "".join(ideas)
    assert text.count("**Exercise") == text.count("<summary>Answer</summary>") >= len(ideas) / 2
    assert re.findall(r"\*\*Exercise (\d+)\.", text) == [str(n + 1) for n in range(text.count("**Exercise"))]


def test_the_contents_list_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w-]+)\.md\)", (HANDBOOK / "README.md").read_text(encoding="utf-8")))
    assert listed == {page.stem for page in PAGES} - {"README"}


def test_an_output_is_compared_line_by_line() -> None:
    assert agrees("loss 2.…\n", "loss 2.345\n")
    assert agrees("…\nlast\n", "one\ntwo\nlast\n")
    assert not agrees("loss 2.…\n", "loss 3.1\n")
    assert not agrees("", "something\n")
