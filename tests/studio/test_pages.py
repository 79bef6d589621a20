"""Every page draws what it should, reacts to what a user does, and can be used by keyboard and screen reader."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.lens.patches import zero_heads
from clearformer.lens.session import Lens
from clearformer.verbs.lens import view

from .driving import download, expect, open_page

pytestmark = pytest.mark.browser
TEXT = "The cat eats the mouse."
LAST = "decoder.blocks.2.cross"


@pytest.fixture(scope="module")
def translator() -> Any:
    return clearformer.load()


def wait_for_translation(page: Any, text: str) -> None:
    expect(page.locator(".translation")).to_have_text(text)
    expect(page.locator("[role=status].hint")).to_have_text("")


def painted(page: Any, canvas: str) -> list[list[float]]:
    """Return the strength of each cell that a canvas shows, from 0 to 1."""
    rows: list[list[float]] = page.locator(canvas).first.evaluate(
        """canvas => {
            const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            return Array.from({ length: height }, (_, i) =>
                Array.from({ length: width }, (_, j) => data[4 * (i * width + j) + 3] / 255));
        }"""
    )
    return rows


def assert_painted(page: Any, canvas: str, values: torch.Tensor) -> None:
    """A pixel has 256 levels, and packed weights round differently."""
    torch.testing.assert_close(torch.tensor(painted(page, canvas)), values, atol=1 / 128, rtol=0)


def test_the_token_leaves_the_address(page: Any, url: str) -> None:
    page.goto(url)
    wait_for_translation(page, "Où est la gare ?")
    assert "token" not in page.url
    page.reload()  # by the cookie
    wait_for_translation(page, "Où est la gare ?")


def test_a_translation_streams_in(page: Any, url: str, translator: Any) -> None:
    open_page(page, url, "translate")
    page.get_by_label("Text", exact=True).fill(TEXT)
    [expected] = translator.candidates(TEXT, beam=1)
    wait_for_translation(page, expected.text)
    tokens = page.locator(".token")
    expect(tokens).to_have_count(len(expected.tokens) + 1)
    tokens.nth(1).click()
    expect(tokens.nth(1)).to_have_attribute("aria-pressed", "true")
    shares = [
        float(text.split()[0]) for text in page.locator(".alternatives .ranked .label:last-of-type").all_text_contents()
    ]
    assert len(shares) == 6
    assert shares == sorted(shares, reverse=True)
    values = json.loads(download(page, re.compile("^Most probable tokens.*JSON")))
    assert [one["probability"] for one in values["alternatives"]] == pytest.approx([s / 100 for s in shares], rel=0.06)
    tokens.nth(1).focus()
    for _ in range(2):  # closed and open again
        page.keyboard.press("Enter")
    expect(tokens.nth(1)).to_be_focused()
    assert "token=1" in page.url
    page.reload()
    expect(tokens.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".alternatives .ranked")).to_have_count(6)
    page.get_by_label("Text", exact=True).fill("A dog.")
    expect(page.locator(".alternatives .ranked")).to_have_count(0)


def test_attention_is_drawn_for_every_head(page: Any, url: str, translator: Any) -> None:
    open_page(page, url, f"translate?text={TEXT}")
    expect(page.locator(".heads .show")).to_have_count(40)
    expect(page.get_by_role("heading", name="Decoder 2, cross, head 0")).to_be_visible()
    values = json.loads(download(page, "save numbers as JSON"))
    translation = page.locator(".translation").inner_text()
    pattern = translator.align(TEXT, translation).pattern[2, 0].tolist()
    assert values["layer"] == LAST
    for row, expected in zip(values["weights"], pattern):
        assert row == pytest.approx(expected, abs=1e-3)
    labels = page.locator(".figure svg .label").all_text_contents()
    assert labels == [token.replace("▁", "␣") for token in [*values["rows"], *values["columns"]]]
    page.locator(".figure summary").click()
    expect(page.locator(".numbers tbody tr")).to_have_count(len(values["rows"]))
    page.get_by_role("button", name="Show Encoder 1, head 3").click()
    expect(page.get_by_role("heading", name="Encoder 1, head 3")).to_be_visible()
    assert "layer=encoder.blocks.1.attn" in page.url
    svg = download(page, "save as SVG")
    assert svg.startswith("<svg")
    assert 'class="' not in svg  # colours are written into the file
    assert "rgb(" in svg
    assert svg.count("<path") > 3  # the cells, which the page has on a canvas


def test_lines(page: Any, url: str) -> None:
    open_page(page, url, "translate?view=lines")
    expect(page.locator(".link").first).to_be_attached()
    for links in page.locator(".links").all():
        weights = [float(link.get_attribute("data-weight")) for link in links.locator(".link").all()]
        assert 0.3 < sum(weights) <= 1.001
    frame = page.locator(".figure .scroll")
    frame.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".readout")).to_contain_text("attends to")


def test_a_head_that_is_off_changes_the_picture_and_the_translation(page: Any, url: str) -> None:
    off = " ".join(
        f"decoder.blocks.{layer}.cross[{head}]" for layer in range(3) for head in range(4) if (layer, head) != (0, 0)
    )
    open_page(page, url, f"translate?text={TEXT}&off={off}&layer=decoder.blocks.1.cross")
    expect(page.locator(".reference")).to_be_visible()
    picture = painted(page, ".figure canvas")
    translation = page.locator(".translation").inner_text()
    head = page.get_by_role("switch", name="Decoder 0, cross, head 0")
    expect(head).to_be_checked()
    head.click()
    expect(head).not_to_be_checked()
    expect(page.locator(".translation")).not_to_have_text(translation)
    assert painted(page, ".figure canvas") != picture
    assert "off=" in page.url
    page.get_by_role("button", name="All heads on").click()
    expect(page.locator(".reference")).to_be_hidden()
    assert page.locator("[role=switch][aria-checked=false]").count() == 0


def test_the_picture_after_a_click_is_that_of_the_changed_model(page: Any, url: str, translator: Any) -> None:
    open_page(page, url, f"translate?text={TEXT}&layer=decoder.blocks.1.attn&head=3")
    expect(page.get_by_role("heading", name="Decoder 1, self, head 3")).to_be_visible()
    off: dict[str, Any] = {}
    for title, name, put in (
        ("Encoder 2, head 1", "encoder.blocks.2.attn", zero_heads(1)),
        ("Decoder 0, cross, head 2", "decoder.blocks.0.cross", zero_heads(2)),
    ):
        page.get_by_role("switch", name=title).click()
        expect(page.get_by_role("switch", name=title)).not_to_be_checked()
        expect(page.locator("[role=status].hint")).to_have_text("")
        expect(page.locator(".reference")).to_be_visible()
        off[f"{name}.z"] = put
        with Lens(translator.model, put=off):
            [written] = translator.candidates(TEXT, beam=1)
            expect(page.locator(".translation")).to_have_text(written.text)
            look = translator.lens(TEXT, written.text)
            assert_painted(page, ".figure canvas", look["decoder.blocks.1.attn.pattern"][0, 3])
            assert_painted(page, "[aria-label='Show Decoder 2, cross, head 0'] canvas", look[f"{LAST}.pattern"][0, 0])
    page.get_by_role("button", name="Show Decoder 2, cross, head 0").click()  # is asked for by its own
    expect(page.get_by_role("heading", name="Decoder 2, cross, head 0")).to_be_visible()
    assert_painted(page, ".figure canvas", look[f"{LAST}.pattern"][0, 0])


def test_a_link_reproduces_the_view(page: Any, url: str) -> None:
    open_page(
        page,
        url,
        f"translate?text={TEXT}&layer=encoder.blocks.2.attn&head=3&view=lines&search=beam&off=encoder.blocks.2.attn[3]",
    )
    expect(page.get_by_role("heading", name="Encoder 2, head 3 (off)")).to_be_visible()
    expect(page.get_by_label("Lines")).to_be_checked()
    expect(page.get_by_role("radio", name="Beam search")).to_be_checked()
    expect(page.get_by_role("switch", name="Encoder 2, head 3")).not_to_be_checked()


def test_beam_search_shows_its_tree(page: Any, url: str, translator: Any) -> None:
    open_page(page, url, f"translate?text={TEXT}&search=beam")
    tree = page.locator(".tree")
    expected = view("beam-tree", translator, TEXT)
    nodes = [node for step in expected["steps"] for node in step]
    expect(tree.locator(".node")).to_have_count(len(nodes))
    best = tree.locator(".node.best").evaluate_all("nodes => nodes.map((node) => Number(node.dataset.id))")
    assert best == expected["best"]
    for fate in ("kept", "finished", "dropped", "unfinished"):
        assert tree.locator(f".node.{fate}").count() == sum(node["fate"] == fate for node in nodes)
    tree.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".beams .readout")).to_contain_text("Step 2")
    expect(page.locator(".beams .readout")).to_contain_text("on the way to the translation")
    page.locator(".beams summary").click()
    expect(page.locator(".beams tbody tr")).to_have_count(len(nodes))
    values = json.loads(download(page, "Beam search: save numbers as JSON"))
    assert [len(step) for step in values["steps"]] == [len(step) for step in expected["steps"]]
    expect(page.locator(".translation")).to_have_text(values["results"][0]["text"])
    page.get_by_text("Greedy, streamed").click()
    expect(page.locator(".beams")).to_have_count(0)


def test_an_error_is_a_sentence(page: Any, url: str) -> None:
    open_page(page, url, "translate?model=runs/nothing")
    expect(page.get_by_role("alert")).to_contain_text("There is no model called runs/nothing")


def test_look_inside_from_layer_to_head_to_cell(page: Any, url: str, translator: Any) -> None:
    open_page(page, url, f"inside?text={TEXT}")
    expect(page.get_by_role("heading", name=f"{LAST}.pattern, head 0")).to_be_visible()
    page.get_by_label("Activations").first.fill("encoder.*.mlp.hidden")
    expect(page.locator(".names li button")).to_have_count(4)
    page.locator("[data-name='encoder.blocks.3.mlp.hidden']").click()
    expect(page.locator(".facts")).to_contain_text("× 768")
    page.get_by_label("Activations").first.fill(f"{LAST}.pattern")
    page.locator(f"[data-name='{LAST}.pattern']").click()
    page.get_by_role("button", name="Show Decoder 2, cross, head 2").click()
    expect(page.get_by_role("heading", name=f"{LAST}.pattern, head 2")).to_be_visible()
    frame = page.locator(".figure .scroll")
    frame.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert "cell=1%2C1" in page.url
    terms = dict(zip(page.locator(".cellpanel dt").all_inner_texts(), page.locator(".cellpanel dd").all_inner_texts()))
    look = translator.lens(TEXT)
    assert float(terms["score"]) == pytest.approx(float(look[f"{LAST}.scores"][0, 2, 1, 1]), abs=6e-3)
    assert terms["q · k / √64"] == terms["score"]
    weight = float(terms["weight, the softmax over the row"].split()[0]) / 100
    assert weight == pytest.approx(float(look[f"{LAST}.pattern"][0, 2, 1, 1]), rel=0.06, abs=6e-3)
    values = json.loads(download(page, "Activation: save numbers as JSON"))
    assert (values["name"], values["head"]) == (f"{LAST}.pattern", 2)
    query = json.loads(download(page, "query: save numbers as JSON"))["values"]
    assert query == pytest.approx(look[f"{LAST}.q"][0, 2, 1].tolist(), abs=1e-3)


def test_look_inside_with_a_head_switched_off(page: Any, url: str, translator: Any) -> None:
    """By mouse and by key; every number on the page comes from the changed model, and the link has the heads."""
    name = "decoder.blocks.1.attn"
    open_page(page, url, f"inside?text={TEXT}&name={name}.pattern&off=encoder.blocks.0.attn[0,2]")
    expect(page.locator(".elsewhere")).to_have_text("Also off: Encoder 0, head 0; Encoder 0, head 2.")
    page.get_by_role("switch", name="Decoder 1, self, head 0").click()
    expect(page.get_by_role("heading", name=f"{name}.pattern, head 0 (off)")).to_be_visible()
    head = page.get_by_role("switch", name="Decoder 1, self, head 3")
    head.focus()
    page.keyboard.press("Space")
    expect(head).not_to_be_checked()
    expect(head).to_be_focused()
    switches = "off=encoder.blocks.0.attn%5B0%5D+encoder.blocks.0.attn%5B2%5D+{0}%5B0%5D+{0}%5B3%5D"
    expect(page).to_have_url(re.compile(re.escape(switches.format(name))))
    put = {"encoder.blocks.0.attn.z": zero_heads(0, 2), f"{name}.z": zero_heads(0, 3)}
    with Lens(translator.model, put=put):
        expected = translator.lens(TEXT)["decoder.blocks.2.resid_pre"][0]  # while it reads its translation
    page.get_by_label("Activations").first.fill("decoder.blocks.2.resid_pre")
    page.locator("[data-name='decoder.blocks.2.resid_pre']").click()
    expect(page.get_by_role("heading", name="decoder.blocks.2.resid_pre")).to_be_visible()
    values = json.loads(download(page, "Activation: save numbers as JSON"))
    assert len(values["off"]) == 4
    torch.testing.assert_close(torch.tensor(values["values"]), expected, atol=1e-3, rtol=0)
    assert not torch.allclose(translator.lens(TEXT)["decoder.blocks.2.resid_pre"][0, :1], expected[:1], atol=1e-2)
    expect(page.get_by_role("switch")).to_have_count(0)
    expect(page.locator(".elsewhere")).to_contain_text("Off: Encoder 0, head 0;")
    page.reload()
    expect(page.locator(".elsewhere")).to_contain_text("Decoder 1, self, head 3.")
    page.get_by_role("button", name="All heads on").click()
    expect(page.locator(".switches")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("off="))


def test_the_walk_with_a_head_switched_off(page: Any, url: str, translator: Any) -> None:
    block = "encoder.blocks.1"
    open_page(page, url, f"inside?text={TEXT}&view=walk&block={block}&part=2")
    expect(page.get_by_role("switch")).to_have_count(4)
    page.get_by_role("switch", name="Encoder 1, head 2").click()
    with Lens(translator.model, put={f"{block}.attn.z": zero_heads(2)}):
        expected = view("walk", translator, TEXT, layer=block, head=2)["steps"]
    names = page.locator(".steps strong")
    expect(names).to_have_text([f"{i}. {step['name']}" for i, step in enumerate(expected, 1)])
    at = [step["name"] for step in expected].index("z, off")
    names.nth(at + 2).click()
    expect(page.get_by_role("heading", name=f"{at + 3}. W_out")).to_be_visible()
    values = json.loads(download(page, re.compile("^Walk: save numbers")))["values"]
    torch.testing.assert_close(torch.tensor(values), torch.tensor(expected[at + 2]["values"]), atol=1e-3, rtol=0)
    page.get_by_role("button", name="Show Encoder 1, head 3").click()
    expect(page.locator(".walk .stage > .hint").first).to_contain_text(f"{block}, head 3")
    expect(page.locator("#walk-head")).to_have_value("3")
    expect(page.get_by_role("switch", name="Encoder 1, head 2")).not_to_be_checked()
    assert "off=encoder.blocks.1.attn%5B2%5D" in page.url


def test_the_walk_shows_every_matrix_of_a_head(page: Any, url: str, translator: Any) -> None:
    open_page(page, url, f"inside?text={TEXT}&view=walk&block=encoder.blocks.1&part=2")
    expected = view("walk", translator, TEXT, layer="encoder.blocks.1", head=2)["steps"]
    names = page.locator(".steps strong")
    expect(names).to_have_text([f"{i}. {step['name']}" for i, step in enumerate(expected, 1)])
    assert page.locator(".steps small").all_inner_texts() == [step["equation"] for step in expected]
    at = [step["name"] for step in expected].index("pattern")
    names.nth(at).click()
    expect(page.get_by_role("heading", name=f"{at + 1}. pattern")).to_be_visible()
    assert f"step={at}" in page.url
    assert_painted(page, ".walk .figure canvas", torch.tensor(expected[at]["values"]))
    page.get_by_role("button", name="Next step").click()
    expect(page.locator(".walk .equation")).to_have_text(expected[at + 1]["equation"])
    page.locator(".steps").focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    at = [step["name"] for step in expected].index("feed-forward, hidden")
    names.nth(at).click()
    expect(page.locator(".walk .facts")).to_contain_text("× 768. Largest difference")
    frame = page.locator(".walk .figure .scroll")
    assert len(painted(page, ".walk .figure canvas")[0]) == 128  # thinned
    frame.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".walk .facts")).to_contain_text("A part with every cell")
    part = torch.tensor(expected[at]["values"])[:, :32]
    assert_painted(page, ".walk .figure canvas", part / part.max())
    assert "zoom=" in page.url
    page.reload()
    expect(page.locator(".walk .facts")).to_contain_text("A part with every cell")
    assert_painted(page, ".walk .figure canvas", part / part.max())
    page.get_by_role("button", name="Whole matrix").click()
    assert "zoom" not in page.url
    assert len(painted(page, ".walk .figure canvas")[0]) == 128
    page.get_by_label("Layer").select_option("decoder.blocks.2")
    expect(page.locator(".walk .stage > .hint").first).to_contain_text("decoder.blocks.2, head 0")
    assert "block=decoder.blocks.2" in page.url


def test_training_shows_samples_and_histograms(page: Any, url: str, trained: Path) -> None:
    open_page(page, url, "training?run=trained")
    samples = [json.loads(line) for line in (trained / "samples.jsonl").read_text().splitlines()]
    cells = page.locator(".samples td")
    expect(cells).to_have_count(3)
    assert cells.all_text_contents() == [sample["text"] for sample in reversed(samples)]
    rows = [json.loads(line) for line in (trained / "histograms.jsonl").read_text().splitlines()]
    section = page.locator(".histograms")
    expect(section.locator(".ridge")).to_have_count(3)
    page.get_by_label("Layer").select_option("decoder.blocks.0")
    page.get_by_text("Gradients", exact=True).click()
    expect(section.get_by_role("heading", name="Gradients of decoder.blocks.0")).to_be_visible()
    assert "part=gradients" in page.url
    section.locator(".scroll").focus()
    page.keyboard.press("ArrowDown")
    expect(section.locator(".readout")).to_contain_text("step 2: most values from")
    with page.expect_download() as info:
        section.get_by_role("button", name="save numbers as JSON").click()
    values = json.loads(Path(info.value.path()).read_text())["rows"]
    assert [row["counts"] for row in values] == [row["gradients"]["decoder.blocks.0"]["counts"] for row in rows]
    section.locator("summary").click()
    expect(section.locator("tbody tr")).to_have_count(3)
    page.get_by_text("Activations", exact=True).click()
    expect(section.get_by_role("heading", name="Activations of decoder.blocks.0")).to_be_visible()
    expect(section.locator(".ridge")).to_have_count(3)
    assert "part=activations" in page.url
    open_page(page, url, "training?run=fast")
    expect(section.locator(".hint").first).to_contain_text("train.histograms=true")
    expect(page.locator(".samples")).to_be_hidden()


def test_training_shows_runs_side_by_side(page: Any, url: str) -> None:
    open_page(page, url, "training?run=fast|slow")
    loss = page.locator("[data-quantity=loss]")
    expect(loss.locator("polyline")).to_have_count(4)  # training and validation of both
    assert len(loss.locator("polyline").first.get_attribute("points").split()) == 40
    titles = page.locator(".charts h3").all_inner_texts()
    assert titles == ["Loss", "BLEU", "Gradient norm", "Learning rate", "Tokens per second"]
    page.get_by_label("slow").uncheck()
    expect(loss.locator("polyline")).to_have_count(2)
    assert "slow" not in page.url
    loss.locator(".scroll").focus()
    page.keyboard.press("ArrowRight")
    expect(loss.locator(".readout")).to_contain_text("step 10:")


def test_training_is_live_and_survives_a_removed_run(page: Any, url: str, runs: Path) -> None:
    folder = shutil.copytree(runs / "half", runs / "live")
    open_page(page, url, "training?run=live")
    loss = page.locator("[data-quantity=loss]")
    expect(loss.locator("circle")).to_have_count(1)  # the half-written record is not there yet
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('ain", "loss": 3.0}\n{"step": 30, "kind": "train", "loss": 2.0}\n')
    expect(loss.locator("polyline")).to_have_count(1)
    assert len(loss.locator("polyline").get_attribute("points").split()) == 3
    expect(page.locator("tr", has_text="live").locator(".live")).to_be_visible()
    shutil.rmtree(folder)
    expect(page.locator(".legend")).to_contain_text("the run folder has been removed")
    expect(page.locator(".runs tr", has_text="live")).to_have_count(0)


def test_a_run_without_records_says_what_is_missing(page: Any, url: str, runs: Path) -> None:
    for name in ("fresh", "fresher"):
        shutil.copytree(runs / "half", runs / name)
        (runs / name / "metrics.jsonl").write_text("")
    hint = page.locator(".charts .hint")
    open_page(page, url, "training?run=fresh")
    expect(hint).to_have_text(
        "fresh has no records of loss, scores or learning rate yet: metrics.jsonl is empty or missing."
    )
    open_page(page, url, "training?run=fresh|fresher")
    expect(hint).to_contain_text("fresh and fresher have no records of loss")
    with (runs / "fresh" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 10, "kind": "train", "loss": 3.0}\n')
    expect(page.locator("[data-quantity=loss] circle")).to_have_count(1)
    expect(hint).to_have_count(0)
    for name in ("fresh", "fresher"):
        shutil.rmtree(runs / name)


def test_a_run_of_another_version_is_a_sentence(page: Any, url: str) -> None:
    open_page(page, url, "training?run=future")
    expect(page.locator(".runs tr", has_text="future").locator(".warning")).to_contain_text("from-the-future")
    expect(page.locator("[data-quantity=loss] circle")).to_have_count(1)  # its metrics are shown all the same


def test_light_and_dark(page: Any, url: str) -> None:
    page.emulate_media(color_scheme="dark")
    open_page(page, url, "training")
    shade = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(shade)
    page.locator("#theme").click()
    assert page.evaluate(shade) != dark  # light
    page.locator("#theme").click()
    assert page.evaluate(shade) == dark
    page.reload()
    expect(page.locator("#theme")).to_have_text("Dark")
    page.locator("#theme").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    ("route", "drawn"),
    [
        ("translate?off=encoder.blocks.0.attn[1]", ".reference"),
        ("translate?view=lines", ".link"),
        ("translate?search=beam", ".tree"),
        ("inside?cell=1,1", ".cellpanel dl"),
        ("inside?view=walk&step=11", ".walk .figure canvas"),
        ("training?run=fast|slow|future", ".charts polyline"),
        ("training?run=trained", ".ridge"),
        ("language?model=runs/play&text=the king&tokens=5&blank=the man ___ a cart", ".blanks .ranked"),
        ("compare?a=runs/play&b=runs/lora&text=the king saw", ".threefigures .label"),
        ("compare?a=runs/good&b=runs/better&text=the king saw", ".compared-classes .ranked"),
        ("embeddings?view=3d", ".point"),
        ("positions?model=runs/play", ".shift .label"),
        ("positions?model=runs/alibi", ".legend"),
    ],
)
def test_no_serious_violation_of_accessibility(
    page: Any, url: str, trained: Path, scheme: str, width: int, route: str, drawn: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    open_page(page, url, route)
    expect(page.locator(drawn).first).to_be_attached()
    expect(page.locator("main h1")).to_be_visible()
    for summary in page.locator("figure summary").all():
        summary.click()
    violations = axe.run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in violations if one["impact"] in ("serious", "critical")]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # only figures scroll sideways
