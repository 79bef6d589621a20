"""Translations by HTTP are those of the command, and streams are greedy searches."""

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer

TEXT = "The cat eats the mouse."


@pytest.fixture(scope="module")
def translator() -> Any:
    return clearformer.load()


def events(response: Any) -> list[tuple[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, done = [part.split("\n") for part in response.text.strip().split("\n\n")]
    assert done == ["data: [DONE]"]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_translations_are_those_of_the_command(client: TestClient, translator: Any) -> None:
    texts = [TEXT, "Where is the station?"]
    rows = client.post("/v1/translate", json={"text": texts, "n": 2, "beam": 3}).json()["translations"]
    expected = translator.candidates(texts, 2, beam=3)
    assert [row["source"] for row in rows] == [texts[0], texts[0], texts[1], texts[1]]
    assert [row["translation"] for row in rows] == [one.text for some in expected for one in some]
    assert [row["logprob"] for row in rows] == pytest.approx(
        [one.logprob for some in expected for one in some], abs=1e-4
    )


def test_a_stream_is_a_greedy_search(client: TestClient, translator: Any) -> None:
    *steps, (end, result) = events(client.post("/v1/translate", json={"text": TEXT, "stream": True, "alternatives": 3}))
    [expected] = translator.candidates(TEXT, beam=1)
    assert end == "end"
    assert result["translation"] == expected.text
    assert result["logprob"] == pytest.approx(expected.logprob, abs=1e-4)
    assert [name for name, _ in steps] == ["token"] * len(steps)
    assert "".join(step["text"] for _, step in steps) == expected.text
    assert [step["token"] for _, step in steps] == [*translator.target_tokenizer.pieces(expected.tokens), "<eos>"]
    for _, step in steps:
        probabilities = [one["probability"] for one in step["alternatives"]]
        assert len(probabilities) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert probabilities[0] == pytest.approx(step["probability"], abs=1e-5)


def test_heads_that_are_off_change_the_translation(client: TestClient) -> None:
    off = [f"decoder.blocks.{layer}.cross[0,1,2,3]" for layer in range(3)]
    before = client.post("/v1/translate", json={"text": TEXT}).json()["translations"][0]
    without = client.post("/v1/translate", json={"text": TEXT, "off": off}).json()["translations"][0]
    assert without["translation"] != before["translation"]
    streamed = events(client.post("/v1/translate", json={"text": TEXT, "off": off, "stream": True}))[-1][1]
    greedy = client.post("/v1/translate", json={"text": TEXT, "off": off, "beam": 1}).json()["translations"][0]
    assert streamed["translation"] == greedy["translation"]
    assert (
        client.post("/v1/translate", json={"text": TEXT}).json()["translations"][0] == before
    )  # nothing is left behind


def test_an_empty_text_has_an_empty_translation(client: TestClient) -> None:
    assert events(client.post("/v1/translate", json={"text": "", "stream": True})) == [
        ("end", {"translation": "", "logprob": 0.0})
    ]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "text: field required"),
        ({"text": "Hi.", "temprature": 1}, 400, "there is no parameter `temprature`"),
        ({"text": "x" * 20_001}, 422, "text: string should have at most 20000 characters"),
        ({"text": ["x", "x" * 20_001]}, 422, "text.1: string should have at most 20000 characters"),
        ({"text": ["x"] * 257}, 422, "text: list should have at most 256 items"),
        ({"text": 3}, 400, "text: input should be a valid string"),
        ({"text": "Hi.", "model": "gpt"}, 404, "gpt is a language model: it cannot translate"),
        ({"text": "Hi.", "model": "en-de"}, 404, "there is no model called `en-de`"),
        ({"text": ["Hi."], "stream": True}, 400, "a stream has one text"),
        ({"text": "Hi.", "stream": True, "beam": 4}, 400, "a stream is a greedy search"),
        ({"text": "Hi.", "off": ["decoder.blocks.1.crss[0]"]}, 400, "no attention layer `decoder.blocks.1.crss`"),
        ({"text": "Hi.", "off": ["decoder.blocks.1.cross[9]"]}, 400, "decoder.blocks.1.cross.z has no head 9"),
        ({"text": "Hi.", "off": ["decoder.blocks.1.cross"]}, 400, "does not name heads"),
    ],
)
def test_mistakes_are_explained(client: TestClient, body: dict[str, Any], status: int, message: str) -> None:
    response = client.post("/v1/translate", json=body)
    assert response.status_code == status
    assert message in response.json()["error"]["message"]
    assert response.json()["error"]["hint"]


def test_a_mistake_in_a_stream_is_an_event(client: TestClient) -> None:
    body = {"text": "Hi.", "stream": True, "off": ["decoder.blocks.9.cross[0]"]}
    [(name, error)] = events(client.post("/v1/translate", json=body))
    assert name == "error"
    assert "no attention layer" in error["message"]
