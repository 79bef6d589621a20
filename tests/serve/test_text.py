"""What the pages on text show is what the handles compute: next tokens, comparisons, neighbours, positions."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer
from clearformer.errors import ConfigError
from clearformer.generation.sampling import draw_token, shaped
from clearformer.lens.difference import check_comparable
from clearformer.serve.app import create_app
from clearformer.serve.language import Next, next_tokens
from clearformer.serve.store import Store
from clearformer.verbs.lens import view

from ..text_runs import write_random, write_text_runs

TENSORS = {"accept": "application/vnd.safetensors"}
TEXT = "the king saw a"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_text_runs(folder)
    return folder


@pytest.fixture(scope="module")
def texts(folder: Path) -> Iterator[TestClient]:
    app = create_app(Store(runs=folder))
    with TestClient(app, base_url="http://127.0.0.1:8137", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def play(folder: Path) -> Any:
    return clearformer.load(folder / "play")


def post(client: TestClient, path: str, model: str | None = "runs/play", **body: Any) -> Any:
    response = client.post(path, json=body if model is None else {"model": model, **body})
    assert response.status_code == 200, response.text
    return response.json()


def logits_after(handle: Any, text: str, tokens: list[int]) -> torch.Tensor:
    ids = [*handle.encode(text), *tokens]
    with torch.no_grad():
        state = handle.model.start(torch.tensor([ids[:-1]]), None)
        return handle.model.step(torch.tensor([[ids[-1]]]), state)[0][0, 0]


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.6}, {"temperature": 1.4, "top_k": 4}, {"top_p": 0.5}, {"top_k": 6, "top_p": 0.8}]
)
def test_the_next_token_is_drawn_from_these_probabilities(
    texts: TestClient, play: Any, settings: dict[str, Any]
) -> None:
    answer = post(texts, "/api/next", text=TEXT, tokens=[9], top=7, seed=3, **settings)
    logits = logits_after(play, TEXT, [9])
    temperature, k, p = settings.get("temperature", 1.0), settings.get("top_k", 0), settings.get("top_p", 1.0)
    expected = shaped(logits, temperature, k, p).softmax(-1)
    assert [row["id"] for row in answer["next"]] == logits.topk(7).indices.tolist()
    for row in answer["next"]:
        assert row["probability"] == pytest.approx(float(expected[row["id"]]), abs=1e-5)
        assert row["unshaped"] == pytest.approx(float(logits.softmax(-1)[row["id"]]), abs=1e-5)
        assert row["token"] == play.tokenizer.pieces([row["id"]])[0]
    assert answer["candidates"] == int((expected > 0).sum())
    positive = expected[expected > 0]
    assert answer["entropy"] == pytest.approx(float(-(positive * positive.log()).sum()), abs=1e-4)
    drawn = draw_token(logits, torch.tensor(answer["drawn"]["uniform"]), temperature, k, p)
    assert answer["drawn"]["id"] == int(drawn)


def test_steps_with_a_seed_write_what_generate_writes(texts: TestClient, play: Any) -> None:
    settings: dict[str, Any] = {"temperature": 0.9, "top_k": 5}
    [expected] = play.generate(TEXT, seed=11, max_new=9, **settings)
    tokens: list[int] = []
    for _ in expected.tokens:
        tokens.append(post(texts, "/api/next", text=TEXT, tokens=tokens, seed=11, **settings)["drawn"]["id"])
    assert tokens == expected.tokens
    assert post(texts, "/api/next", text=TEXT, tokens=tokens)["text"] == expected.text


def test_temperature_0_takes_the_most_probable_token(texts: TestClient, play: Any) -> None:
    answer = post(texts, "/api/next", text=TEXT, temperature=0, seed=5)
    assert answer["candidates"] == 1
    assert (
        answer["drawn"]["id"] == answer["next"][0]["id"] == play.generate(TEXT, temperature=0, max_new=1)[0].tokens[0]
    )


def test_the_settings_of_decoding_apply(folder: Path) -> None:
    """A repetition penalty and a minimum length in [decode] of a model change its draws as they change `generate`."""
    handle = clearformer.load(folder / "play")
    handle.decode = handle.decode.changed(repetition_penalty=3.0, min_length=4)
    [expected] = handle.generate(TEXT, seed=2, max_new=6, temperature=1.0)
    tokens: list[int] = []
    with torch.inference_mode():
        for _ in expected.tokens:
            tokens.append(next_tokens(handle, Next(text=TEXT, tokens=tokens, seed=2))["drawn"]["id"])
    assert tokens == expected.tokens
    assert tokens != handle.generate(TEXT, seed=2, max_new=6, temperature=1.0, repetition_penalty=1.0)[0].tokens


def test_surprise_adds_up_to_the_score(texts: TestClient, play: Any) -> None:
    answer = post(texts, "/api/surprise", text=TEXT, tokens=[9], top=3)
    score = play.score(f"{TEXT} {play.tokenizer.pieces([9])[0]}", closed=False)
    assert answer["logprob"] == pytest.approx(score.logprob, abs=1e-4)
    assert answer["perplexity"] == pytest.approx(score.perplexity, rel=1e-4)
    assert len(answer["tokens"]) == score.tokens
    for row in answer["tokens"]:
        assert row["probability"] == pytest.approx(math.exp(row["logprob"]), rel=1e-5)
        assert len(row["alternatives"]) == 3
        if row["rank"] == 1:
            assert row["alternatives"][0]["probability"] == row["probability"]
    assert post(texts, "/api/surprise", text="")["tokens"] == []


@pytest.mark.parametrize("name", ["play", "mask"])
def test_blanks_and_scores_are_those_of_the_commands(texts: TestClient, folder: Path, name: str) -> None:
    words = post(texts, "/api/fill", f"runs/{name}", text="the man ___ a cart", n=3, candidates=["pulled", "king", "a"])
    expected = clearformer.fill(folder / name, "the man ___ a cart", 3, ["pulled", "king", "a"])
    assert [row["word"] for row in words["words"]] == [row["word"] for row in expected]
    for row, other in zip(words["words"], expected):
        assert row.keys() == other.keys()
        assert row["logprob"] == pytest.approx(other["logprob"], abs=1e-4)
    rivals = ["the man pulled a cart", "the man king a cart"]
    scores = post(texts, "/api/score", f"runs/{name}", texts=rivals)["scores"]
    other_scores = clearformer.score(folder / name, rivals)
    assert [row["text"] for row in scores] == [row["text"] for row in other_scores]
    assert [row["logprob"] for row in scores] == pytest.approx([row["logprob"] for row in other_scores], abs=1e-4)


def test_a_base_and_its_adapter(texts: TestClient, folder: Path, play: Any) -> None:
    lora = clearformer.load(folder / "lora")
    body = {"models": ["runs/play", "runs/lora"], "text": TEXT, "max_new": 5}
    answer = post(texts, "/api/compare", None, **body)
    for output, handle in zip(answer["outputs"], (play, lora)):
        assert output["text"] == handle.generate(TEXT, temperature=0, max_new=5)[0].text
    looks = [handle.lens(TEXT) for handle in (play, lora)]
    for row in answer["layers"]:
        a, b = (look[row["name"]].double() for look in looks)
        assert row["difference"] == pytest.approx(float((a - b).norm() / a.norm()), rel=1e-3)
    assert [row["name"] for row in answer["layers"]][:3] == [
        f"decoder.blocks.0.{part}" for part in ("attn_out", "mlp_out", "resid_post")
    ]
    for tokens, look in zip(answer["tokens"], looks):
        chosen = [row for row in look.view("alternatives")["chosen"] if row is not None]
        assert [row["token"] for row in tokens] == [row["token"] for row in chosen]
        assert [row["rank"] for row in tokens] == [row["rank"] for row in chosen]
        assert [row["probability"] for row in tokens] == pytest.approx([row["probability"] for row in chosen], abs=1e-5)
    response = texts.post("/api/compare", json=body, headers=TENSORS)
    tensors = safetensors.torch.load(response.content)
    assert len(tensors) == 4
    for side, look in enumerate(looks):
        pattern = tensors[f"{side}/decoder.blocks.1.attn.pattern"]
        torch.testing.assert_close(pattern, look["decoder.blocks.1.attn.pattern"][0], atol=1e-5, rtol=1e-4)


def test_a_model_is_equal_to_itself(texts: TestClient) -> None:
    answer = post(texts, "/api/compare", None, models=["en-fr-small"] * 2, text="The cat eats.", patterns=False)
    assert answer["target"] == answer["outputs"][0]["translation"] == clearformer.load().translate("The cat eats.")
    assert {row["difference"] for row in answer["layers"]} == {0.0}
    assert answer["tokens"][0] == answer["tokens"][1]
    assert answer["tokens"][0][-1]["token"] == "<eos>"
    assert answer["activations"] == {}
    given = post(texts, "/api/compare", None, models=["en-fr-small"] * 2, text="A cat.", target="Un chien.")
    logprob = sum(row["logprob"] for row in given["tokens"][0])
    assert logprob == pytest.approx(clearformer.load().score("A cat.", "Un chien."), abs=1e-3)


def test_classifiers(texts: TestClient, folder: Path) -> None:
    answer = post(texts, "/api/compare", None, models=["runs/good", "runs/better"], text="the king saw a cart")
    for output, name in zip(answer["outputs"], ("good", "better")):
        expected = clearformer.load(folder / name).predict("the king saw a cart", top=3)
        assert [row["label"] for row in output["top"]] == [row["label"] for row in expected["top"]]
        assert output["probability"] == pytest.approx(expected["probability"], abs=1e-5)
    assert answer["tokens"] == [None, None]
    assert max(row["difference"] for row in answer["layers"]) > 0.1


def test_models_that_cannot_be_compared(texts: TestClient, folder: Path) -> None:
    for other, message in (("en-fr-small", "`runs/play` is a language model, and `en-fr-small` is a translator"),
                           ("runs/alibi", "`runs/play` and `runs/alibi` have different tokenizers")):  # fmt: skip
        response = texts.post("/api/compare", json={"models": ["runs/play", other], "text": TEXT})
        assert response.status_code == 400
        assert message in response.json()["error"]["message"]
    good, better = (clearformer.load(folder / name) for name in ("good", "better"))
    better.classes = ["a", "b", "c"]
    with pytest.raises(ConfigError, match="`good` and `better` have different classes"):
        check_comparable(good, better, ("good", "better"))


def test_layers_of_other_widths_are_left_out(texts: TestClient, folder: Path) -> None:
    write_random(folder / "wide", "gpt", d_model=24, positions={"kind": "alibi"})
    answer = post(texts, "/api/compare", None, models=["runs/alibi", "runs/wide"], text=TEXT)
    assert answer["layers"] == []
    assert len(answer["tokens"][0]) == len(answer["tokens"][1]) > 0


def test_neighbours_are_those_of_the_command(texts: TestClient, folder: Path) -> None:
    answer = post(texts, "/api/neighbours", word="king - man + woman", n=4)
    expected = clearformer.neighbours(folder / "play", "king - man + woman", 4)
    assert [row["word"] for row in answer["neighbours"]] == [row["word"] for row in expected]
    assert [row["cosine"] for row in answer["neighbours"]] == pytest.approx([row["cosine"] for row in expected])


def test_a_map_leaves_out_words_that_the_vocabulary_lacks(texts: TestClient, play: Any) -> None:
    answer = post(texts, "/api/vectors", words="king zebra queen,man zebra")
    expected = view("vectors", play, words="king queen man")
    assert answer == {**expected, "unknown": ["zebra"]}
    some = post(texts, "/api/vectors")["maps"][0]["tokens"]
    assert some == ["man", "woman", "king", "queen", "horse", "city", "river"]
    french = post(texts, "/api/vectors", None, layer="target")["maps"][0]["tokens"]
    assert french == [word for word in french if word.isalpha()]
    assert len(french) == 12


@pytest.mark.parametrize("name", ["play", "alibi", "rotary"])
def test_positions_are_those_of_the_view(texts: TestClient, folder: Path, name: str) -> None:
    answer = post(texts, "/api/positions", f"runs/{name}")
    handle = clearformer.load(folder / name)
    expected = view("positions", handle)
    assert answer["title"] == expected["title"]
    [one], [other] = answer["encodings"], expected["encodings"]
    assert one.keys() == other.keys()
    assert one["kind"] == other["kind"]
    if name == "alibi":
        assert answer["activations"] == {}
        assert one["bias"] == other["bias"]
        return
    values = torch.tensor(answer["activations"]["decoder.positions"]["values"])
    if name == "play":
        torch.testing.assert_close(values, handle.model.decoder.positions.table.weight.detach())
    else:  # cosines, then sines of p ω
        torch.testing.assert_close(values[:, 0], torch.arange(128).float().cos(), atol=1e-5, rtol=0)
        torch.testing.assert_close(values[:, 5], torch.arange(128).float().sin(), atol=1e-5, rtol=0)


def test_a_shift_is_a_rotation(texts: TestClient) -> None:
    known = view("positions")["encodings"][1]
    for k in (5, 7):
        answer = post(texts, "/api/positions/shift", None, k=k, name="decoder.positions")
        assert answer["is_exact"]
        assert answer["error"] < 1e-9
        block = torch.tensor(answer["matrix"])[:2, :2]
        turn = torch.tensor([[math.cos(k), math.sin(k)], [-math.sin(k), math.cos(k)]])
        torch.testing.assert_close(block, turn, atol=1e-6, rtol=0)
        if str(k) in known["shifts"]:
            assert answer["angles"] == pytest.approx(known["shifts"][str(k)]["angles"])
    fitted = post(texts, "/api/positions/shift", k=29)
    assert not fitted["is_exact"]
    rows = torch.tensor(fitted["matrix"], dtype=torch.float64)
    torch.testing.assert_close(rows @ rows.T, torch.eye(28, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("next", {"tokens": [99]}, 400, "the vocabulary of play has no token 99"),
        ("next", {"tokens": [-1]}, 400, "the vocabulary of play has no token -1"),
        ("next", {"temprature": 1}, 400, "there is no parameter `temprature`"),
        ("next", {"top_p": 0}, 400, "top_p: input should be greater than 0"),
        ("next", {"text": "the " * 70}, 422, "reads at most 61"),
        ("next", {"model": "en-fr-small"}, 404, "en-fr-small is a translator, not a language model"),
        ("surprise", {"text": "the " * 70}, 422, "reads at most 61"),
        ("fill", {"text": "no blank"}, 400, "has 0 blanks, but exactly one is required"),
        ("fill", {"text": "the ___", "model": "runs/good"}, 404, "good is a classifier: it cannot fill"),
        ("fill", {"text": "the ___", "candidates": []}, 400, "candidates"),
        ("score", {"texts": []}, 400, "texts: list should have at least 1 item"),
        ("score", {"texts": ["a"], "source": "b"}, 400, "play is a language model, not a translator"),
        ("compare", {"models": ["runs/play"], "text": "the"}, 400, "models: list should have at least 2 items"),
        ("compare", {"models": ["runs/play", "runs/no"], "text": "the"}, 404, "there is no model called `runs/no`"),
        ("neighbours", {"word": "zebra"}, 400, "`zebra` is not in the vocabulary of play"),
        ("neighbours", {"word": "king -  + man"}, 400, "has a sign without a word"),
        ("vectors", {"words": "king queen zebra"}, 400, "2 different tokens: a map needs at least 3"),
        ("positions/shift", {"k": 30}, 400, "a shift by 30 is too large"),
        ("positions/shift", {"k": 1, "name": "encoder"}, 400, "no position vectors called `encoder`"),
        ("positions/shift", {"k": 1, "model": "runs/alibi"}, 400, "alibi has no position vectors"),
    ],
)
def test_mistakes_are_one_sentence(
    texts: TestClient, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    default = {} if "models" in body else {"model": "runs/play"}
    response = texts.post(f"/api/{path}", json={**default, **body})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert message in error["message"]
    assert "\n" not in error["message"]
    assert error["hint"]


def test_thumbnails_of_a_model_without_attention(texts: TestClient) -> None:
    """A page asks for all patterns: a model that has none gives none. A name that is wrong is still refused."""
    body = {"text": TEXT, "model": "runs/lstm", "names": [], "alternatives": 2}
    values = texts.post("/api/activations", json={**body, "thumbnails": ["*.pattern"]}).json()
    assert values["thumbnails"] == {}
    assert len(values["predictions"]) == len(TEXT.split())
    response = texts.post("/api/activations", json={**body, "thumbnails": ["decoder.pattern"]})
    assert response.json()["error"]["message"] == "no activation is called `decoder.pattern`"
