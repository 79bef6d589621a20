"""Classify, Images and Speech: what they draw of a text, an image and a recording, by drop, choice and microphone."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer.loading.open import handle_of, open_model
from clearformer.verbs.lens import view

from ..serve.media_models import RATE, as_png, stripes, tone
from .chromium import find_chromium
from .driving import choose, duration, expect, open_page, params, saved, window

pytestmark = pytest.mark.browser
TEXT = "the fine film about a house"
PNG, WAV = as_png(stripes(True, 1)), tone("low high low")
VERTICAL = {"name": "stripes.png", "mimeType": "image/png", "buffer": PNG}
TONES = {"name": "tones.wav", "mimeType": "audio/wav", "buffer": WAV}


@pytest.fixture(scope="module")
def handle(runs: Path) -> Any:
    return lambda name: handle_of(open_model(runs / "media" / name))


@pytest.fixture
def lenient(chromium: Any, url: str) -> Iterator[Any]:
    """A window in which the server refuses a file."""
    with window(chromium, url, refused="/api/files/") as page:
        yield page


def drop(page: Any, file: dict[str, Any]) -> None:
    """Drop a file on the page as a user does."""
    script = """([name, type, bytes]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
        for (const kind of ["dragover", "drop"]) {
            const event = new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true });
            document.querySelector(".drop").dispatchEvent(event);
        }
    }"""
    expect(page.locator(".drop")).to_be_visible()
    page.evaluate(script, [file["name"], file["mimeType"], list(file["buffer"])])
    expect(page.locator(".filename")).to_have_text(file["name"])


def bars(page: Any) -> dict[str, float]:
    texts = [bar.locator("text").all_text_contents() for bar in page.locator(".classbar").all()]
    return {label: float(value.split()[0]) / 100 for label, value in texts}


def wait_until_idle(page: Any) -> None:
    for status in page.locator("[role=status].hint:not(.filename)").all():
        expect(status).to_have_text("")


# --- Classify


def test_classes_of_a_text_and_what_speaks_for_them(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, f"classify?model=runs/media/reviews&text={TEXT}")
    expect(page.locator(".verdict")).to_contain_text("good, ")
    expect(page.locator(".shade")).not_to_have_count(0)
    row = handle("reviews").predict(TEXT, top=2)
    for one in row["top"]:
        assert bars(page)[one["label"]] == pytest.approx(one["probability"], abs=0.006)
    expect(page.get_by_role("heading", name="What speaks for good")).to_be_visible()
    values = json.loads(saved(page, "What speaks for"))
    shown = [float(rect.get_attribute("data-value")) for rect in page.locator(".shade .heat").all()]
    assert shown == pytest.approx(values["integrated"][values["outputs"].index("good")])
    words = page.locator(".shade text:first-of-type").all_text_contents()
    assert words[int(np.argmax(shown))] == "fine"
    page.locator(".classbar", has_text="bad").click()
    expect(page.get_by_role("heading", name="What speaks for bad")).to_be_visible()
    assert params(page)["class"] == "bad"
    assert page.locator(".shade").nth(words.index("fine")).locator(".heat").get_attribute("class") == "heat cold"
    page.locator(".reason .scroll").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".reason .readout")).to_contain_text("for bad")
    page.locator(".reason summary").click()
    expect(page.locator(".reason tbody tr")).to_have_count(len(words))
    page.reload()  # by the address
    expect(page.get_by_role("heading", name="What speaks for bad")).to_be_visible()
    expect(page.locator(".trust")).to_contain_text("not calibrated")
    expect(page.locator(".trust code")).to_contain_text("clearformer evaluate --model")
    expect(page.locator(".trust code")).to_contain_text("--labels test.tsv --calibrate")


def test_the_text_is_classified_while_it_is_typed(page: Any, url: str) -> None:
    open_page(page, url, "classify?model=runs/media/reviews")
    page.get_by_label("Text", exact=True).fill("a dull story")
    expect(page.locator(".verdict")).to_contain_text("bad, ")
    assert params(page)["text"] == "a dull story"
    frame = page.locator(".bars")
    frame.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("heading", name="What speaks for good")).to_be_visible()
    expect(page.locator(".bars")).to_be_focused()


def test_a_tagger_has_a_class_for_each_word(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, f"classify?model=runs/media/tags&text={TEXT}")
    expect(page.locator(".token")).to_have_count(len(TEXT.split()))
    page.locator(".token").nth(2).click()
    expect(page.locator(".verdict")).to_contain_text("film: ")
    word = handle("tags").predict(TEXT, top=2)["words"][2]
    assert bars(page)[word["label"]] == pytest.approx(word["probability"], abs=0.006)
    assert params(page)["word"] == "2"


def test_what_speaks_for_the_class_of_each_word(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, f"classify?model=runs/media/tags&text={TEXT}")
    best = handle("tags").predict(TEXT, top=2)["words"]
    heading = page.locator(".reason h3")
    expect(heading).to_have_text(f"What speaks for {best[0]['label']}, the class of the")
    page.locator(".token").nth(2).click()
    expect(heading).to_have_text(f"What speaks for {best[2]['label']}, the class of film")
    values = view("attribution", handle("tags"), TEXT, position=2)
    expect(page.locator(".shade")).to_have_count(len(values["inputs"]))
    shown = [float(rect.get_attribute("data-value")) for rect in page.locator(".shade .heat").all()]
    expected = values["integrated"][values["outputs"].index(best[2]["label"])]
    assert shown == pytest.approx(expected, rel=1e-3, abs=1e-4)
    page.reload()
    expect(heading).to_have_text(f"What speaks for {best[2]['label']}, the class of film")


def test_what_speaks_for_the_class_of_a_pair(page: Any, url: str, handle: Any) -> None:
    pair = ("the fine film", "a dull story")
    open_page(page, url, f"classify?model=runs/media/same&text={pair[0]}&pair={pair[1]}")
    [best, _] = handle("same").predict(*pair, top=2)["top"]
    expect(page.locator(".verdict")).to_contain_text(f"{best['label']}, ")
    expect(page.locator(".reason h3")).to_have_text(f"What speaks for {best['label']}")
    values = view("attribution", handle("same"), "\t".join(pair))
    words = page.locator(".shade text:first-of-type").all_text_contents()
    assert words == values["inputs"]
    shown = [float(rect.get_attribute("data-value")) for rect in page.locator(".shade .heat").all()]
    expected = values["integrated"][values["outputs"].index(best["label"])]
    assert shown == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_classes_of_a_dropped_image(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, "classify?model=runs/media/stripes")
    drop(page, VERTICAL)
    expect(page.locator(".verdict")).to_contain_text("vertical, ")
    expect(page.get_by_role("heading", name="What speaks for vertical")).to_be_visible()
    expect(page.locator(".reason svg image")).to_have_count(3)  # the image, and the image below the heat
    assert "example" not in params(page)
    svg = saved(page, "What speaks for", "save as SVG")
    assert svg.count("data:image/png;base64,") == 3
    bins = handle("stripes").path / "calibration.json"
    reliability = json.loads(bins.read_text())["reliability"]
    expect(page.locator(".trust")).to_contain_text("Calibrated: the logits are divided by")
    shown = [float(one.get_attribute("data-accuracy")) for one in page.locator(".bin .heat").all()]
    assert shown == pytest.approx([one["accuracy"] for one in reliability])
    page.get_by_label("Before").check(force=True)
    before = json.loads(bins.read_text())["reliability_uncalibrated"]
    expect(page.locator(".bin")).to_have_count(len(before))
    assert params(page)["bins"] == "before"


def test_a_pasted_image(page: Any, url: str) -> None:
    open_page(page, url, "classify?model=runs/media/patches")
    expect(page.locator(".drop")).to_be_visible()
    script = """(bytes) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], "pasted.png", { type: "image/png" }));
        document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
    }"""
    page.evaluate(script, list(PNG))
    expect(page.locator(".filename")).to_have_text("pasted.png")
    expect(page.locator(".classbar")).to_have_count(2)


# --- Images


def test_evidence_features_and_filters_of_an_image(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, "images?model=runs/media/stripes")
    expect(page.locator(".example")).to_have_count(8)
    expect(page.locator(".example[aria-pressed=true]")).to_have_count(1)  # the first example is shown at once
    choose(page, VERTICAL)
    wait_until_idle(page)
    expect(page.get_by_role("heading", name="What speaks for vertical")).to_be_visible()
    page.locator(".classbar", has_text="horizontal").click()
    expect(page.get_by_role("heading", name="What speaks for horizontal, layer stages.1.0")).to_be_visible()
    page.locator("#layer").select_option("stem")
    expect(page.get_by_role("heading", name="What speaks for horizontal, layer stem")).to_be_visible()
    heat = json.loads(saved(page, "Evidence"))
    assert np.shape(heat["heat"]) == (1, 16, 16)
    assert heat["captions"][0].startswith("horizontal ")
    page.locator("#maps").select_option("stages.1.0")
    expect(page.get_by_role("heading", name="7 feature maps (8×8) of stripes, layer stages.1.0")).to_be_visible()
    expect(page.locator(".features .tile")).to_have_count(8)
    frame = page.locator(".features .scroll").first
    frame.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    features = json.loads(saved(page, "Feature maps"))
    channel = features["channels"][1]
    expect(page.get_by_role("heading", name=f"Channel {channel} of stages.1.0")).to_be_visible()
    assert json.loads(saved(page, "Channel"))["values"] == features["tiles"][2]
    filters = page.locator("section[aria-label=Filters]")
    expect(filters.locator(".tile")).to_have_count(5)
    found = params(page)
    assert found["class"] == "horizontal"
    assert (found["at"], found["layer"], found["channel"]) == ("stem", "stages.1.0", str(channel))


def test_a_link_to_an_example_reproduces_the_view(page: Any, url: str) -> None:
    route = "images?model=runs/media/stripes&example=5&class=horizontal&at=stem&layer=stages.1.0"
    open_page(page, url, route)
    expect(page.get_by_role("heading", name="What speaks for horizontal, layer stem")).to_be_visible()
    expect(page.locator("#maps")).to_have_value("stages.1.0")
    assert params(page)["example"] == "5"


def test_rollout_of_a_vision_transformer(page: Any, url: str, handle: Any) -> None:
    open_page(page, url, "images?model=runs/media/patches")
    expect(page.locator("section[aria-label=Filters]")).to_be_visible()  # needs no image
    choose(page, VERTICAL)
    expect(page.get_by_role("heading", name="What speaks for")).to_be_visible()
    page.get_by_label("Attention rollout").check(force=True)
    expect(page.get_by_role("heading", name="Attention rollout of patches through 2 layers")).to_be_visible()
    assert params(page)["view"] == "rollout"
    values = json.loads(saved(page, "Evidence"))
    assert np.shape(values["heat"]) == (1, 4, 4)
    frame = page.locator("section[aria-label='Where the model looks'] .scroll")
    frame.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("section[aria-label='Where the model looks'] .readout")).to_contain_text("Attention at row 0")


def test_reconstruction_of_an_autoencoder(page: Any, url: str) -> None:
    open_page(page, url, "images?model=runs/media/coder")
    choose(page, VERTICAL)
    card = page.locator("section[aria-label=Reconstruction]")
    expect(card.locator(".tile")).to_have_count(3)
    expect(card.locator(".readout")).to_contain_text("Mean squared error")
    expect(page.locator("section[aria-label=Classes]")).to_be_hidden()
    expect(page.locator("section[aria-label='Where the model looks']")).to_be_hidden()


@pytest.mark.parametrize("path", ["looks", "examples"])
def test_a_file_that_comes_early_waits_for_the_model(page: Any, url: str, path: str) -> None:
    held: list[Any] = []
    page.route(f"**/api/{path}?*", lambda request: held.append(request))
    with page.expect_request(f"**/api/{path}?*"):
        open_page(page, url, "images?model=runs/media/stripes")
    choose(page, VERTICAL)
    held[0].continue_()
    expect(page.get_by_role("heading", name="What speaks for vertical")).to_be_visible()
    expect(page.locator(".filename")).to_have_text("stripes.png")  # not the first example


def test_a_file_stays_when_the_model_or_page_changes(page: Any, url: str) -> None:
    open_page(page, url, "images?model=runs/media/patches")
    choose(page, VERTICAL)
    page.locator("#model").select_option("runs/media/coder")
    expect(page.locator("section[aria-label=Reconstruction] .tile")).to_have_count(3)
    expect(page.locator(".filename")).to_have_text("stripes.png")
    page.locator("#pages a", has_text="Classify").click()
    page.locator("#model").select_option("runs/media/patches")
    expect(page.locator(".filename")).to_have_text("stripes.png")
    expect(page.locator(".classbar")).to_have_count(2)


# --- Speech


def test_a_recording_from_waveform_to_words(page: Any, url: str) -> None:
    open_page(page, url, "speech?model=runs/media/tones")
    drop(page, TONES)
    expect(page.locator(".translation")).to_have_text("low high low")
    expect(page.locator(".token")).to_have_count(3)
    values = json.loads(saved(page, "What the model hears"))
    assert values["transcript"] == "low high low"
    lines = page.locator(".spike")
    expect(lines).to_have_count(len(values["tokens"]))
    assert len(lines.first.get_attribute("points").split()) == len(values["blank"])
    expect(page.locator(".hearing image")).to_have_count(1)
    expect(page.locator(".word")).to_have_count(3)
    page.locator(".figure summary").click()
    expect(page.locator(".numbers tbody tr")).to_have_count(len(values["spikes"]))
    page.locator(".figure .scroll").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("0.03 s: ")
    expect(page.locator(".now")).to_have_attribute("visibility", "visible")
    assert float(params(page)["at"]) == pytest.approx(values["seconds_per_frame"] / 2, abs=1e-3)
    svg = saved(page, "What the model hears", "save as SVG")
    assert "data:image/png;base64," in svg


def test_the_cursor_follows_the_playback(page: Any, url: str) -> None:
    open_page(page, url, "speech?model=runs/media/tones")
    choose(page, TONES)
    expect(page.locator(".translation")).to_have_text("low high low")
    expect(page.locator("audio")).to_have_js_property("readyState", 4)
    assert duration(page) == pytest.approx((len(WAV) - 44) / (2 * RATE), abs=0.01)
    page.locator(".token").nth(1).click()  # plays from the second word on
    now = page.locator(".now")
    expect(now).to_have_attribute("visibility", "visible")
    expect(page.locator("audio")).to_have_js_property("ended", True)
    svg = page.locator(".hearing")
    width = float(svg.get_attribute("width"))
    assert float(now.get_attribute("x1")) > 0.8 * width


def test_a_recording_of_the_microphone(chromium: Any, url: str) -> None:
    """Chromium's fake microphone beeps; the page makes a WAV file of it."""
    flags = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    browser = chromium.browser_type.launch(executable_path=find_chromium(), args=flags)
    with contextlib.closing(browser), window(browser, url) as page:
        page.goto(f"{url}#/speech?model=runs/media/tones")
        page.get_by_role("button", name="Record", exact=True).click()
        stop = page.get_by_role("button", name="Stop recording")
        expect(stop).to_be_visible()
        page.wait_for_timeout(1500)
        with page.expect_request("**/api/files/lens/ctc*") as request:
            stop.click()
        body = request.value.post_data_buffer
        assert body[:4] == b"RIFF"
        expect(page.locator(".filename")).to_have_text("Microphone")
        expect(page.locator(".hearing")).to_be_visible()
        expect(page.locator("audio")).to_have_js_property("readyState", 4)
        assert 0.5 < duration(page) < 10


# --- bad files, missing models, accessibility


@pytest.mark.parametrize(
    ("route", "file", "message"),
    [
        ("images?model=runs/media/stripes", b"nothing", "The image cannot be read: it is damaged or not an image."),
        ("classify?model=runs/media/stripes", PNG[:99], "The image cannot be read: it is damaged or not an image."),
        ("speech?model=runs/media/tones", WAV[:999], "The recording is truncated"),
    ],
    ids=["images", "classify", "speech"],
)
def test_a_bad_file_is_a_sentence(lenient: Any, url: str, route: str, file: bytes, message: str) -> None:
    open_page(lenient, url, route)
    choose(lenient, {"name": "bad", "mimeType": "application/octet-stream", "buffer": file})
    expect(lenient.get_by_role("alert")).to_contain_text(message)
    choose(lenient, TONES if route.startswith("speech") else VERTICAL)
    expect(lenient.get_by_role("alert")).to_have_count(0)


def test_a_file_that_is_too_large_is_not_sent(page: Any, url: str, tmp_path: Path) -> None:
    open_page(page, url, "images?model=runs/media/stripes")
    expect(page.locator(".example")).to_have_count(8)
    (tmp_path / "huge.png").write_bytes(bytes(26_000_000))
    page.locator("input[type=file]").set_input_files(tmp_path / "huge.png")
    expect(page.get_by_role("alert")).to_contain_text("Huge.png has 26.0 MB, but at most 25 MB can be sent.")


@pytest.mark.parametrize(
    ("route", "command"),
    [
        ("classify", "clearformer train --labels reviews.tsv --out runs/reviews"),
        ("images", "clearformer train --images photos/ --out runs/photos"),
        ("speech", "clearformer train --recordings digits.tsv --out runs/digits"),
    ],
)
def test_without_a_model_the_page_says_what_to_type(page: Any, url: str, route: str, command: str) -> None:
    def only_the_translator(request: Any) -> None:
        answer = request.fetch()
        body = answer.json()
        body["models"] = [model for model in body["models"] if model["name"] == "en-fr-small"]
        request.fulfill(response=answer, json=body)

    page.route("**/api/models", only_the_translator)
    open_page(page, url, route)
    expect(page.locator(".missing code")).to_have_text([command, "clearformer studio --runs runs/"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    ("route", "drawn"),
    [
        (f"classify?model=runs/media/reviews&text={TEXT}", ".shade"),
        ("classify?model=runs/media/stripes", ".reason image"),
        ("images?model=runs/media/stripes", ".features image"),
        ("speech?model=runs/media/tones&at=0.4", ".hearing"),
        ("inside?model=runs/media/stripes&cell=3,5", ".cellpanel dl"),
        ("inside?model=runs/media/tones&cell=3,5", ".cellpanel dl"),
        (f"classify?model=runs/media/tags&text={TEXT}&word=2", ".shade"),
    ],
)
def test_no_serious_violation_of_accessibility(
    page: Any, url: str, scheme: str, width: int, route: str, drawn: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    open_page(page, url, route)
    expect(page.locator(drawn).first).to_be_attached()
    wait_until_idle(page)
    for summary in page.locator("figure summary:visible").all():
        summary.click()
    violations = axe.run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in violations if one["impact"] in ("serious", "critical")]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
