"""What holds for all pages: pictures and numbers can be saved, links reproduce the view, keys reach every control."""

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from .driving import expect, open_page, window

pytestmark = pytest.mark.browser
TEXT = "the fine film about a house"
PAGES = {  # what a page shows -> its address, and what is drawn last
    "translation": ("translate?text=The cat eats the mouse.&token=1", ".alternatives .ranked"),
    "lines and tree": ("translate?view=lines&search=beam&off=encoder.blocks.0.attn[1]", ".tree"),
    "next token": ("language?model=runs/play&text=the king&blank=the man ___ a cart", ".blanks .ranked"),
    "cell of a head": ("inside?cell=1,1", ".cellpanel dl"),
    "cell of a map": ("inside?model=runs/media/stripes&name=stages.1.0.out&head=3&cell=2,4", ".cellpanel dl"),
    "cell of a frame": ("inside?model=runs/media/tones&cell=3,5", ".cellpanel dl"),
    "walk": ("inside?view=walk&step=11", ".walk .figure canvas"),
    "flat map": ("embeddings?model=runs/play&word=king", ".point"),
    "turnable map": ("embeddings?view=3d", ".point"),
    "sinusoids": ("positions?k=3", ".shift .label"),
    "biases": ("positions?model=runs/alibi", ".legend"),
    "rotary": ("positions?model=runs/rotary", ".figure polyline"),
    "classes of a text": (f"classify?model=runs/media/reviews&text={TEXT}", ".shade"),
    "classes of words": (f"classify?model=runs/media/tags&text={TEXT}", ".shade"),
    "classes of an image": ("classify?model=runs/media/stripes", ".reason image"),
    "convolutional network": ("images?model=runs/media/stripes&channel=1", ".features image"),
    "recording": ("speech?model=runs/media/tones&at=0.4", ".hearing"),
    "curves": ("training?run=fast|slow", ".charts polyline"),
    "histograms": ("training?run=trained|again|fast", ".ridge"),
    "adapter": ("compare?a=runs/play&b=runs/lora&text=the king saw", ".threefigures .label"),
    "classifiers": ("compare?a=runs/good&b=runs/better&text=the king saw", ".compared-classes .ranked"),
}
every_page = pytest.mark.parametrize("name", PAGES)
# Everything in the page but what follows the pointer, and with what is painted and chosen, which HTML does not have.
STATE = """() => {
    const page = document.querySelector("main").cloneNode(true);
    for (const one of page.querySelectorAll(".readout, .numbers, audio, [visibility], [hidden]")) one.remove();
    const painted = [...document.querySelectorAll("main canvas")].map((canvas) => canvas.toDataURL());
    const chosen = [...document.querySelectorAll("main :is(input, select, textarea)")]
        .map((one) => `${one.id || one.value} ${["radio", "checkbox"].includes(one.type) ? one.checked : one.value}`);
    // Attributes that `chosen` has, or that do not matter; and digits, which a batch may round differently.
    const left = / (tabindex|name|class|style|placeholder|open|checked|width|height)="[^"]*"/g;
    const html = page.innerHTML.replaceAll(left, "").replaceAll(/(\\.\\d{3})\\d+/g, "$1");
    return { html: html.split(/(?=<)/), painted, chosen };
}"""


def show(page: Any, url: str, name: str) -> None:
    route, drawn = PAGES[name]
    open_page(page, url, route)
    expect(page.locator(drawn).first).to_be_attached()
    settle(page)


def settle(page: Any) -> None:
    """Wait until nothing on the page has changed for a while, half a minute at most."""
    state = page.evaluate(STATE)
    for _ in range(40):
        page.wait_for_timeout(700)  # longer than a page waits for the end of typing
        before, state = state, page.evaluate(STATE)
        if state == before:
            return
    assert differences(before, state) == {}, "the page goes on changing"


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[Any]]:
    """Return the first parts of two states of a page that differ."""
    pairs = {part: list(zip_longest(before[part], found)) for part, found in after.items()}
    return {part: different[:5] for part, both in pairs.items() if (different := [x for x in both if x[0] != x[1]])}


@every_page
def test_every_picture_is_saved_as_svg_and_its_numbers_as_json(page: Any, url: str, trained: Path, name: str) -> None:
    show(page, url, name)
    figures = page.locator("main figure.figure:visible")
    pictures = page.locator("main svg[role=img]:visible")
    assert 0 < figures.count() == pictures.count()  # no picture is outside a figure, or shares one
    for figure in figures.all():
        texts = []
        for kind in ("SVG", "numbers as JSON"):
            page.wait_for_timeout(300)  # Chromium drops files that are saved faster
            with page.expect_download() as info:
                figure.get_by_role("button", name=re.compile(f"save (as )?{kind}$")).click()
            texts.append(Path(info.value.path()).read_text(encoding="utf-8"))
        picture = ElementTree.fromstring(texts[0])
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        drawn = [
            one
            for one in picture.iter()
            if one.tag.rpartition("}")[2] in ("path", "rect", "polyline", "circle", "image")
        ]
        assert len(drawn) > 1  # besides the background
        assert not any("class" in one.attrib for one in picture.iter())  # the colours are in the file
        linked = [value for one in picture.iter() for key, value in one.attrib.items() if key.endswith("href")]
        assert all(value.startswith("data:image/png;base64,") for value in linked)
        assert any(numbers_in(json.loads(texts[1])))
        figure.locator("summary").last.click()
        expect(figure.locator(".numbers tbody tr").first).to_be_visible()


def numbers_in(values: Any) -> list[float]:
    if isinstance(values, dict | list):
        return [one for value in (values.values() if isinstance(values, dict) else values) for one in numbers_in(value)]
    return [values] if isinstance(values, int | float) and not isinstance(values, bool) else []


@every_page
def test_a_link_reproduces_what_was_chosen(page: Any, chromium: Any, url: str, trained: Path, name: str) -> None:
    """Every control of the page is moved; then the address is opened in another browser."""
    show(page, url, name)
    move_everything(page)
    settle(page)
    expected = page.evaluate(STATE)
    with window(chromium, url) as other:
        other.goto(url + page.url[page.url.index("#") :])
        for _ in range(40):
            if other.evaluate(STATE) == expected:
                break
            other.wait_for_timeout(500)
        assert differences(expected, other.evaluate(STATE)) == {}


def move_everything(page: Any) -> None:
    main = page.locator("main")
    for place in range(main.locator("select").count()):
        select = main.locator("select").nth(place)
        if select.is_visible() and not (select.get_attribute("id") or "").startswith("model"):
            select.select_option(index=select.locator("option").count() - 1)
            settle(page)
    for place in range(main.locator("fieldset.choice").count()):
        others = main.locator("fieldset.choice").nth(place).locator("label:not(:has(:checked))")
        if others.count() and "Step by step" not in others.last.inner_text():  # another page
            others.last.click()
            settle(page)
    for slider in main.locator("input[type=range]:visible").all():
        slider.focus()
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        settle(page)
    for clicked in (
        "[role=switch]",
        ".heads .show",
        ".example",
        ".classbar",
        "button.token",
        ".surprising",
        ".runs input",
    ):
        buttons = main.locator(f"{clicked}:visible")
        if buttons.count() > 1:
            buttons.nth(1).click()
            settle(page)
    for place in range(main.locator(".scroll[tabindex]").count()):
        frame = main.locator(".scroll[tabindex]").nth(place)
        if frame.count() and frame.is_visible():
            frame.focus()
            for key in ("ArrowDown", "ArrowRight", "Enter"):
                page.keyboard.press(key)
            settle(page)


@every_page
def test_keys_reach_every_control_and_show_where_they_are(page: Any, url: str, trained: Path, name: str) -> None:
    show(page, url, name)
    wanted = page.evaluate(
        """() => {
            const kinds = ["a[href]", "button", "input", "select", "textarea", "summary", "[tabindex='0']"];
            const isReached = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled
                && one.tabIndex === 0 && !(one.type === "radio" && !one.checked) && one.type !== "file";
            window.wanted = [...document.querySelectorAll(kinds.join())].filter(isReached);
            return window.wanted.length;
        }"""
    )
    reached: set[int] = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(wanted + 40):  # the player of a recording has buttons of its own
        page.keyboard.press("Tab")
        place, is_shown = page.evaluate(
            """() => {
                const one = document.activeElement, shown = one.type === "radio" ? one.nextElementSibling : one;
                const { outlineStyle, outlineWidth } = getComputedStyle(shown);
                return [window.wanted.indexOf(one), outlineStyle !== "none" && parseFloat(outlineWidth) > 0];
            }"""
        )
        if place >= 0:
            assert is_shown, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
            reached.add(place)
    missed = page.evaluate(
        "all => all.map((i) => window.wanted[i].outerHTML.slice(0, 200))", sorted({*range(wanted)} - reached)
    )
    assert missed == []
