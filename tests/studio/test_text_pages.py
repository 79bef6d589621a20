"""The pages on language models, comparisons, embeddings and positions: what they draw is what the handles compute."""

import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.lens.patches import zero_heads
from clearformer.lens.session import Lens

from .driving import download, expect, open_page, window

pytestmark = pytest.mark.browser
TEXT = "the king saw a"
RIVALS = "The man pulled a cart", "The man pooled a cart"
NEXT = f"language?model=runs/play&text={TEXT}"


@pytest.fixture(scope="module")
def play(runs: Path) -> Any:
    return clearformer.load(runs / "play")


def numbers(page: Any, figure: str) -> Any:
    return json.loads(download(page, re.compile(f"^{figure}.*: save numbers as JSON")))


def labels(page: Any, where: str) -> list[str]:
    """The names of the rows of a figure: each row has its label and, at the end, its number."""
    return page.locator(f"{where} .ranked .label:first-of-type").all_text_contents()


def slide(page: Any, name: str, value: float) -> None:
    page.get_by_label(name, exact=True).evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', { bubbles: true })) }", value
    )


def distribution(handle: Any, text: str) -> torch.Tensor:
    ids = handle.encode(text)
    with torch.no_grad():
        state = handle.model.start(torch.tensor([ids[:-1]]), None)
        return handle.model.step(torch.tensor([ids[-1:]]), state)[0][0, 0]


def test_the_next_token_follows_the_sliders(page: Any, url: str, play: Any) -> None:
    open_page(page, url, f"{NEXT}&temperature=0.5&top_k=4")
    expect(page.locator(".next .facts")).to_contain_text("4 of 19 tokens can be drawn")
    logits = distribution(play, TEXT)
    best = logits.topk(4)
    expected = (best.values / 0.5).softmax(-1).tolist()
    bars = [float(bar.get_attribute("data-value")) for bar in page.locator(".next .rankfill").all()]
    assert bars == pytest.approx(expected, abs=1e-4)
    assert labels(page, ".next")[:4] == play.tokenizer.pieces(best.indices.tolist())
    values = numbers(page, "Next token")
    assert (values["temperature"], values["top_k"], values["candidates"]) == (0.5, 4, 4)
    page.get_by_label("Temperature", exact=True).focus()
    page.keyboard.press("ArrowRight")  # sliders have keys of their own
    expect(page.locator(".next output").first).to_have_text("0.55")
    slide(page, "Top-k", 0)
    slide(page, "Top-p", 0.6)
    slide(page, "Temperature", 1)
    kept = int((logits.softmax(-1).sort(descending=True).values.cumsum(0) < 0.6).sum()) + 1
    expect(page).to_have_url(re.compile(r"text=the\+king\+saw\+a&top_p=0.6$"))  # the other settings are the defaults
    expect(page.locator(".next .facts")).to_contain_text(f"{kept} of 19 tokens")


def test_step_undo_and_write(page: Any, url: str, play: Any) -> None:
    open_page(page, url, f"{NEXT}&seed=7")
    [expected] = play.generate(TEXT, seed=7, temperature=1.0, max_new=6)
    pieces = play.tokenizer.pieces(expected.tokens)
    expect(page.locator(".next .facts")).to_contain_text(f"Seed 7 draws {pieces[0]}.")
    page.get_by_role("button", name="Step").click()
    expect(page.locator(".written strong")).to_have_text(f" {pieces[0]}")
    page.get_by_role("button", name="Step").click()
    expect(page.locator(".written strong")).to_have_text(f" {pieces[0]} {pieces[1]}")
    expect(page).to_have_url(re.compile(f"tokens={expected.tokens[0]}%2C{expected.tokens[1]}$"))
    expect(page.locator(".surprise .surprising")).to_have_count(len(TEXT.split()) + 2)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".written strong")).to_have_text(f" {pieces[0]}")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".written")).to_be_hidden()
    page.get_by_role("button", name="Write").click()
    expect(page.locator(".written strong")).to_contain_text(expected.text)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Write")).to_be_visible()


def test_writing_ends_at_the_end_of_the_model(page: Any, url: str) -> None:
    open_page(page, url, f"language?model=runs/play&text={'the man ' * 27}")
    page.get_by_role("button", name="Write").click()
    expect(page.locator("form [role=status]")).to_contain_text("as long as the model can read")
    expect(page.get_by_role("button", name="Write")).to_be_visible()


def test_a_step_at_once_is_drawn_for_the_text_as_it_stands(page: Any, url: str, play: Any) -> None:
    """Neither a click before the first answer is lost, nor does one after an edit append a token of the old text."""
    page.route("**/api/next", lambda route: (page.wait_for_timeout(300), route.continue_()))
    open_page(page, url, f"{NEXT}&seed=7")
    page.get_by_role("button", name="Step").click()
    [first] = play.generate(TEXT, seed=7, temperature=1.0, max_new=1)
    expect(page.locator(".written strong")).to_have_text(first.text)
    page.get_by_label("Text", exact=True).fill("the man and the")
    page.get_by_role("button", name="Step").click()
    [second] = play.generate("the man and the", seed=7, temperature=1.0, max_new=1)
    expect(page.locator(".written .given")).to_have_text("the man and the")
    expect(page.locator(".written strong")).to_have_text(second.text)
    expect(page).to_have_url(re.compile(f"tokens={second.tokens[0]}$"))


def test_a_token_is_appended_by_click_and_by_key(page: Any, url: str, play: Any) -> None:
    open_page(page, url, NEXT)
    names = play.tokenizer.pieces(distribution(play, TEXT).topk(3).indices.tolist())
    page.locator(".next .ranked").nth(1).click()
    expect(page.locator(".written strong")).to_have_text(f" {names[1]}")
    expect(page.locator(".next .facts")).to_contain_text("draws")
    after = play.tokenizer.pieces(distribution(play, f"{TEXT} {names[1]}").topk(1).indices.tolist())
    page.locator(".next .ranking").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".next .readout")).to_contain_text(f"{after[0]}: drawn with")
    page.keyboard.press("Enter")
    expect(page.locator(".written strong")).to_have_text(f" {names[1]} {after[0]}")
    page.reload()
    expect(page.locator(".written strong")).to_have_text(f" {names[1]} {after[0]}")


def test_surprise(page: Any, url: str, play: Any) -> None:
    open_page(page, url, NEXT)
    tokens = page.locator(".surprise .surprising")
    expect(tokens).to_have_count(len(TEXT.split()))
    shown = [float(one.get_attribute("data-probability")) for one in page.locator(".surprise .strong").all()]
    score = play.score(TEXT, closed=False)
    assert sum(map(math.log, shown)) == pytest.approx(score.logprob, abs=1e-3)
    expect(page.locator(".surprise .total")).to_contain_text(f"Log-probability {score.logprob:.2f} in 4 tokens")
    strengths = [float(one.get_attribute("fill-opacity")) for one in page.locator(".surprise .strong").all()]
    assert sorted(range(4), key=lambda i: strengths[i]) == sorted(range(4), key=lambda i: -shown[i])
    page.locator(".surprise .scroll").focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".surprise .readout")).to_contain_text("king: ")
    expect(page.locator(".surprise .alternatives h3")).to_have_text("Most probable tokens in the place of king")
    expect(page.locator(".surprise .alternatives .ranked")).to_have_count(6)
    page.reload()  # by the address
    expect(page.locator(".surprise .alternatives h3")).to_have_text("Most probable tokens in the place of king")


def test_blanks_and_rival_sentences(page: Any, url: str, play: Any) -> None:
    open_page(page, url, NEXT)
    page.get_by_label("Sentence with").fill("the man ___ a cart")
    page.get_by_label("Words to choose from").fill("pulled, king, saw")
    page.get_by_role("button", name="Rank words").click()
    expected = play.fill("the man ___ a cart", candidates=["pulled", "king", "saw"])
    expect(page.locator(".blanks .ranked")).to_have_count(3)
    assert labels(page, ".blanks") == [row.word for row in expected]
    for row, other in zip(numbers(page, "Words for the blank")["words"], expected):
        assert row["logprob"] == pytest.approx(other.logprob, abs=1e-4)
    page.get_by_label("One sentence per line").fill("the man king a cart\nthe man pulled a cart")
    page.get_by_role("button", name="Compare sentences").click()
    ranked = play.rank(["the man king a cart", "the man pulled a cart"])
    expect(page.locator(".rivals .ranked .label").first).to_have_text(ranked[0].text)
    assert f"log p {ranked[0].logprob:.2f}" in page.locator(".rivals .ranked .label").nth(1).text_content()
    page.locator(".rivals summary").click()
    expect(page.locator(".rivals tbody tr")).to_have_count(2)
    cells = page.locator(".rivals tbody tr").nth(1).locator("td").all_inner_texts()
    assert [float(text) for text in cells[:2]] == pytest.approx(
        [ranked[1].logprob, ranked[1].logprob - ranked[0].logprob], abs=2e-3
    )
    page.reload()  # the address holds both
    expect(page.locator(".blanks .ranked")).to_have_count(3)
    expect(page.locator(".rivals .ranked .label").first).to_have_text(ranked[0].text)


def test_a_masked_model_fills_and_scores(page: Any, url: str) -> None:
    open_page(page, url, "language?model=runs/mask&blank=the man ___ a cart&rivals=the man saw a cart")
    expect(page.locator(".blanks .ranked").first).to_be_visible()
    expect(page.locator(".rivals .ranked")).to_have_count(1)
    expect(page.locator(".next")).to_be_hidden()
    expect(page.locator(".kind")).to_contain_text("it has no next token")


def test_a_language_model_with_heads_switched_off(page: Any, url: str, play: Any) -> None:
    open_page(page, url, f"{NEXT}&blank=the man ___ a cart")
    expect(page.get_by_role("heading", name="Decoder 1, self, head 0")).to_be_visible()
    expect(page.get_by_role("switch")).to_have_count(4)
    rivals = page.locator(".rivals .ranked")
    expect(rivals).to_have_count(2)
    expect(page.locator(".blanks .ranked").first).to_be_visible()
    off = {"decoder.blocks.1.attn.z": zero_heads(0), "decoder.blocks.0.attn.z": zero_heads(1)}
    page.get_by_role("switch", name="Decoder 1, self, head 0").click()
    head = page.get_by_role("switch", name="Decoder 0, self, head 1")
    head.focus()
    page.keyboard.press("Enter")
    expect(head).not_to_be_checked()
    expect(head).to_be_focused()
    expect(page.get_by_role("heading", name="Decoder 1, self, head 0 (off)")).to_be_visible()
    plain = distribution(play, TEXT).softmax(-1).sort(descending=True).values.tolist()
    with Lens(play.model, put=off):
        expected = distribution(play, TEXT).softmax(-1).sort(descending=True).values.tolist()
        surprise = play.score(TEXT, closed=False).logprob
        ranked = {row.text: row.logprob for row in play.rank([RIVALS[0], RIVALS[1]])}
        pattern = play.lens(TEXT)["decoder.blocks.1.attn.pattern"][0, 0]
    assert expected != pytest.approx(plain, abs=1e-3)
    expect(page.locator(".surprise .total")).to_contain_text(f"Log-probability {surprise:.2f} in 4 tokens")
    expect(page.locator(".rivals .ranked .label").nth(1)).to_contain_text(f"log p {max(ranked.values()):.2f}")
    bars = [float(bar.get_attribute("data-value")) for bar in page.locator(".next .rankfill").all()]
    assert bars == pytest.approx(expected[: len(bars)], abs=1e-4)
    for row in numbers(page, "Sentences by probability")["scores"]:
        assert row["logprob"] == pytest.approx(ranked[row["text"]], abs=1e-4)
    shown = numbers(page, "Attention")
    assert shown["off"] == ["decoder.blocks.1.attn[0]", "decoder.blocks.0.attn[1]"]
    torch.testing.assert_close(torch.tensor(shown["weights"]), pattern, atol=1e-3, rtol=0)
    page.reload()  # by the address
    expect(page.get_by_role("switch", name="Decoder 0, self, head 1")).not_to_be_checked()
    page.get_by_role("button", name="All heads on").click()
    expect(page.locator("[role=switch][aria-checked=false]")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("off="))
    expect(page.locator(".surprise .total")).to_contain_text(
        f"Log-probability {play.score(TEXT, closed=False).logprob:.2f} in 4 tokens"
    )
    assert float(page.locator(".next .rankfill").first.get_attribute("data-value")) == pytest.approx(plain[0], abs=1e-4)


def test_heads_of_a_masked_model_and_of_one_without_attention(page: Any, url: str) -> None:
    open_page(page, url, "language?model=runs/mask&rivals=the man saw a cart")
    label = page.locator(".rivals .ranked .label").nth(1)
    expect(label).to_contain_text("log p")
    before = label.text_content()
    page.get_by_role("switch", name="Encoder 1, head 1").click()
    expect(label).not_to_have_text(before)
    open_page(page, url, "language?model=runs/lstm")
    expect(page.locator(".surprise .surprising").first).to_be_visible()
    expect(page.get_by_role("switch")).to_have_count(0)


def test_two_models_on_one_text(page: Any, url: str, runs: Path, play: Any) -> None:
    open_page(page, url, f"compare?a=runs/play&b=runs/lora&text={TEXT}")
    lora = clearformer.load(runs / "lora")
    for i, handle in enumerate((play, lora)):
        [continuation] = handle.generate(TEXT, temperature=0, max_new=20)
        expect(page.locator(".outputs strong").nth(i)).to_have_text(continuation.text)
    expect(page.locator(".compared-tokens .ranked")).to_have_count(3)
    looks = [handle.lens(TEXT) for handle in (play, lora)]
    chosen = [[row for row in look.view("alternatives")["chosen"] if row] for look in looks]
    bars = [float(bar.get_attribute("data-value")) for bar in page.locator(".compared-tokens .rankfill").all()]
    expected = [side[i]["probability"] for i in range(3) for side in chosen]
    assert bars == pytest.approx(expected, abs=1e-4)
    for row in numbers(page, "Layers")["layers"]:
        a, b = (look[row["name"]].double() for look in looks)
        assert row["difference"] == pytest.approx(float((a - b).norm() / a.norm()), rel=1e-2)
    page.locator(".compared-layers .ranked").first.click()
    expect(page.get_by_role("heading", name="B − A: Decoder 0, self, head 0")).to_be_visible()
    page.get_by_role("button", name="Show Decoder 1, self, head 1").click()
    expect(page.get_by_role("heading", name="B − A: Decoder 1, self, head 1")).to_be_visible()
    expect(page).to_have_url(re.compile(r"layer=decoder\.blocks\.1\.attn&head=1"))
    a, b = (look["decoder.blocks.1.attn.pattern"][0, 1] for look in looks)
    shown = numbers(page, "B − A")
    assert (shown["layer"], shown["head"], shown["columns"]) == ("decoder.blocks.1.attn", 1, TEXT.split())
    torch.testing.assert_close(torch.tensor(shown["weights"]), b - a, atol=1e-4, rtol=0)
    page.get_by_role("button", name="Swap").click()
    expect(page.locator(".outputs h2").first).to_contain_text("A: runs/lora")


def test_translators_side_by_side(page: Any, url: str, runs: Path, trained: Path) -> None:
    settings = ["train.steps=4", "train.validate_every=4", "optim.lr=0.05"]
    clearformer.finetune(
        trained, pairs=runs / "pairs.tsv", method="lora", out=runs / "tuned", settings=settings, device="cpu"
    )
    open_page(page, url, "compare?a=runs/trained&b=runs/tuned&text=cat 7&target=chat 7")
    expect(page.locator(".compared-tokens")).to_contain_text("Both read the translation “chat 7”.")
    handles = [clearformer.load(folder) for folder in (trained, runs / "tuned")]
    assert page.locator(".outputs .translation").all_inner_texts() == [handle.translate("cat 7") for handle in handles]
    looks = [handle.lens("cat 7", target="chat 7") for handle in handles]
    chosen = [[row for row in look.view("alternatives")["chosen"] if row] for look in looks]
    shown = numbers(page, "Token probabilities")["tokens"]
    for side, expected in zip(shown, chosen):
        assert [row["probability"] for row in side] == pytest.approx([row["probability"] for row in expected], abs=1e-4)
    page.get_by_role("button", name="Show Decoder 0, cross, head 3").click()
    a, b = (look["decoder.blocks.0.cross.pattern"][0, 3] for look in looks)
    difference = numbers(page, "B − A")
    assert (difference["layer"], difference["head"]) == ("decoder.blocks.0.cross", 3)
    torch.testing.assert_close(torch.tensor(difference["weights"]), b - a, atol=1e-4, rtol=0)
    page.get_by_label("Translation that both read").fill("chat 8")
    expect(page.locator(".compared-tokens")).to_contain_text("Both read the translation “chat 8”.")


def test_classifiers_side_by_side(page: Any, url: str, runs: Path) -> None:
    open_page(page, url, "compare?a=runs/good&b=runs/better&text=the king saw a cart")
    expect(page.locator(".compared-classes .ranked")).to_have_count(3)
    rows = [clearformer.load(runs / name).predict("the king saw a cart", top=3) for name in ("good", "better")]
    assert page.locator(".outputs .translation").all_inner_texts() == [row["label"] for row in rows]
    classes = numbers(page, "Classes")["classes"]
    for side, row in zip(classes, rows):
        assert [one["probability"] for one in side] == pytest.approx(
            [one["probability"] for one in row["top"]], abs=1e-4
        )


def test_neighbours_and_sums(page: Any, url: str, play: Any) -> None:
    open_page(page, url, "embeddings?model=runs/play&word=king&words=king queen man woman city zebra")
    expect(page.get_by_role("heading", name="Neighbours of king")).to_be_visible()
    page.get_by_label("A word, or a sum").fill("king - man + woman")
    expect(page.get_by_role("heading", name="Neighbours of king - man + woman")).to_be_visible()
    expected = play.neighbours("king - man + woman", 12)
    assert labels(page, ".page") == [word for word, _ in expected]
    rows = numbers(page, "Neighbours")["neighbours"]
    assert [row["cosine"] for row in rows] == pytest.approx([cosine for _, cosine in expected], abs=1e-5)
    page.locator(".ranked").first.click()
    expect(page.get_by_role("heading", name=f"Neighbours of {expected[0][0]}")).to_be_visible()
    page.get_by_role("button", name="Show on the map").click()
    expect(page.locator(".point")).not_to_have_count(5)


def test_a_map_of_words(page: Any, url: str, play: Any) -> None:
    words = "king queen man woman city"
    open_page(page, url, f"embeddings?model=runs/play&words={words} zebra")
    expect(page.locator(".point")).to_have_count(5)
    expect(page.locator(".warning")).to_have_text("Not in the vocabulary: zebra.")
    [known] = clearformer.verbs.lens.view("vectors", play, words=words)["maps"]
    values = numbers(page, "Map")
    assert values["tokens"] == words.split()
    for point, other in zip(values["points"], known["points"]):
        assert point == pytest.approx(other, abs=1e-5)
    circles = {one.get_attribute("data-name"): one.locator("circle") for one in page.locator(".point").all()}
    places = [[float(circles[name].get_attribute(axis)) for axis in ("cx", "cy")] for name in words.split()]
    drawn = torch.pdist(torch.tensor(places, dtype=torch.float64))
    true = torch.pdist(torch.tensor(known["points"], dtype=torch.float64)[:, :2])
    torch.testing.assert_close(drawn / drawn.max(), true / true.max(), atol=1e-3, rtol=0)  # distances keep their ratios
    page.locator(".scatter").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".twofigures .readout").first).to_contain_text("king: nearest")


def test_a_map_that_turns(page: Any, url: str) -> None:
    open_page(page, url, "embeddings?model=runs/play&view=3d&words=king queen man woman city")
    expect(page.get_by_role("heading", name="Map in three dimensions")).to_be_visible()
    before = page.locator(".scatter").inner_html()
    page.locator(".scatter").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".scatter").inner_html() != before
    expect(page).to_have_url(re.compile("turn=0.469%2C0.350"))  # a step of π / 24 from 0.6
    page.locator(".scatter svg").scroll_into_view_if_needed()
    box = page.locator(".scatter svg").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 130)
    page.mouse.up()
    expect(page).to_have_url(re.compile("turn=0.969%2C0.600"))  # 60 and 30 pixels, 120 for a radian
    places = [circle.get_attribute("cx") for circle in page.locator(".point circle").all()]
    page.reload()
    expect(page.locator(".point")).to_have_count(5)
    for circle, before in zip(page.locator(".point circle").all(), places):
        assert float(circle.get_attribute("cx")) == pytest.approx(float(before), abs=1)


def test_a_finger_turns_the_map_and_scrolls_no_page(chromium: Any, url: str) -> None:
    """Without `touch-action`, Chromium would take the finger for the page after some pixels, and cancel the pointer."""
    phone = {"viewport": {"width": 390, "height": 500}, "has_touch": True, "is_mobile": True}
    with window(chromium, url, **phone) as page:
        touch = page.context.new_cdp_session(page).send
        open_page(page, url, "embeddings?model=runs/play&words=king queen man woman city&view=3d")
        picture = page.locator(".turnable svg")
        expect(page.locator(".turnable .point")).to_have_count(5)
        picture.evaluate("one => one.scrollIntoView({ block: 'center' })")
        box, before = picture.bounding_box(), page.evaluate("scrollY")
        x, y = box["x"] + 120, max(box["y"], 0) + 60
        touch("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        for step in range(1, 13):
            point = {"x": x + 5 * step, "y": y + 10 * step}
            touch("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
        touch("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        expect(page).to_have_url(re.compile("turn=1.100%2C1.350"))  # 60 and 120 pixels from 0.6 and 0.35
        assert page.evaluate("scrollY") == before > 0


def test_positions_of_the_bundled_translator(page: Any, url: str) -> None:
    open_page(page, url, "positions?k=3")
    expect(page.locator(".shifttext")).to_contain_text("T_3 is known")
    values = numbers(page, "T_k")
    assert torch.tensor(values["matrix"])[:2, :2].flatten().tolist() == pytest.approx(
        [math.cos(3), math.sin(3), -math.sin(3), math.cos(3)], abs=1e-6
    )
    page.get_by_label("Shift k").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name="T_4, first 64 features")).to_be_visible()
    expect(page).to_have_url(re.compile("k=4"))
    table = numbers(page, "Vectors of the positions")["values"]
    assert (len(table), len(table[0])) == (128, 256)
    assert table[2][:2] == pytest.approx([math.sin(2), math.cos(2)], abs=1e-6)
    page.get_by_text("decoder.positions").click()
    expect(page.locator(".positions .facts").first).to_contain_text("decoder.positions: sinusoids")
    expect(page).to_have_url(re.compile(r"name=decoder\.positions"))


def test_positions_of_other_kinds(page: Any, url: str, runs: Path, play: Any) -> None:
    open_page(page, url, "positions?model=runs/play&k=2")
    error = clearformer.verbs.lens.view("positions", play)["encodings"][0]["shifts"]["2"]["error"]
    expect(page.locator(".shifttext")).to_contain_text("R_2 is the best rotation")
    assert numbers(page, "T_k")["error"] == pytest.approx(error, rel=1e-3)
    open_page(page, url, "positions?model=runs/alibi")
    expect(page.locator(".panel.bias polyline")).to_have_count(2)
    bias = numbers(page, "Bias by distance")
    slopes = clearformer.load(runs / "alibi").model.decoder.positions.slopes
    assert [row[bias["distance"].index(-5)] for row in bias["bias"]] == pytest.approx((-5 * slopes).tolist())
    open_page(page, url, "positions?model=runs/rotary")
    expect(page.locator(".panel.by_distance polyline")).to_have_count(1)
    omega = 10000 ** (-torch.arange(0, 10, 2, dtype=torch.float64) / 10)
    points = numbers(page, "Similarity by distance")["by_distance"]
    assert points[3] == pytest.approx([3, float((3 * omega).cos().mean())])


@pytest.fixture(scope="module")
def bare() -> Any:
    """The URL of a studio with the bundled translator alone."""
    command = [sys.executable, "-m", "clearformer", "studio", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.send_signal(signal.SIGINT)
    server.wait(20)
    server.stdout.close()


def test_without_models_a_page_says_what_to_type(chromium: Any, bare: str) -> None:
    with window(chromium, bare) as page:
        for route, command in (
            ("language", "clearformer train --text play.txt --out runs/play"),
            ("compare", "clearformer finetune --model en-fr-small --pairs mine.tsv --method lora --out runs/mine"),
        ):
            page.goto(f"{bare}#/{route}")
            expect(page.locator(".nomodel code").first).to_have_text(command)
            expect(page.locator(".nomodel code").last).to_have_text("clearformer studio --runs runs/")


def test_models_that_cannot_be_compared_are_explained(chromium: Any, url: str) -> None:
    with window(chromium, url, refused="/api/compare$") as page:
        page.goto(f"{url}#/compare?a=en-fr-small&b=runs/play")
        expect(page.get_by_role("alert")).to_contain_text("`en-fr-small` is a translator, and `runs/play` is")
