"""Classes, scores and words by HTTP are those of the commands with --json."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer

TEXTS = ["The dog sees a tree", "A man likes the book?"]


def close(answer: Any, expected: Any) -> bool:
    """Whether two JSON values are the same, with numbers that may be rounded differently: weights are packed."""
    if isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(close(answer[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(map(close, answer, expected))
    return answer == (pytest.approx(expected, rel=1e-5, abs=1e-4) if isinstance(expected, float) else expected)


def test_classify_texts(client: TestClient, folders: dict[str, Path]) -> None:
    answer = client.post("/v1/classify", json={"model": "classifier", "text": TEXTS, "top": 2}).json()
    assert close(answer, {"texts": clearformer.classify(folders["classifier"], TEXTS, top=2)})
    one = client.post("/v1/classify", json={"model": "classifier", "text": TEXTS[0], "top": 2}).json()
    assert close(one["texts"], answer["texts"][:1])


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    draw = np.random.default_rng(3)
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path in paths:
        Image.fromarray(draw.integers(0, 256, (17, 19, 3), "uint8")).save(path)
    return paths


def test_classify_images(client: TestClient, folders: dict[str, Path], images: list[Path]) -> None:
    encoded = [base64.b64encode(path.read_bytes()).decode() for path in images]
    body = {"model": "image_classifier", "image": [encoded[0], f"data:image/png;base64,{encoded[1]}"]}
    answer = client.post("/v1/classify", json=body).json()
    expected = clearformer.classify(folders["image_classifier"], images, top=5)
    assert close(answer, {"images": [{**row, "image": f"image {i}"} for i, row in enumerate(expected)]})


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "image_classifier", "image": "no base64!"}, 400, "image 0 is not base64"),
        ({"model": "image_classifier", "image": "aGVsbG8="}, 400, "the image cannot be read: it is damaged or not"),
        ({"model": "image_classifier", "text": "/etc/passwd"}, 400, "it needs `image` and nothing else"),
        ({"model": "image_classifier", "image": "/etc/passwd"}, 400, "image 0 is not base64"),
        ({"model": "classifier", "image": "aGVsbG8="}, 400, "it needs `text` and nothing else"),
        ({"model": "classifier", "text": ["a", "b"], "pair": "b"}, 400, "2 texts and 1 second text cannot be paired"),
        ({"model": "gpt", "text": "a"}, 404, "gpt is a language model: it cannot classify"),
        ({"model": "classifier", "text": "a", "top_k": 3}, 400, "there is no parameter `top_k`"),
    ],
)
def test_mistakes_of_classify(client: TestClient, body: dict[str, Any], status: int, message: str) -> None:
    response = client.post("/v1/classify", json=body)
    assert (response.status_code, message in response.json()["error"]["message"]) == (status, True), response.text


@pytest.mark.parametrize(("model", "source"), [("gpt", None), ("bert", None), ("en-fr-small", "Un chien")])
def test_score(client: TestClient, folders: dict[str, Path], model: str, source: str | None) -> None:
    body = {"model": model, "text": TEXTS, **({"source": source} if source else {})}
    answer = client.post("/v1/score", json=body).json()
    assert close(answer, {"scores": clearformer.score(folders.get(model, model), TEXTS, source=source)})


def test_fill(client: TestClient, folders: dict[str, Path]) -> None:
    text = "The dog ___ a tree"
    answer = client.post("/v1/fill", json={"model": "bert", "text": text, "n": 3}).json()
    assert close(answer, {"words": clearformer.fill(folders["bert"], text, 3)})
    body = {"model": "bert", "text": text, "candidates": ["sees", "likes"]}
    answer = client.post("/v1/fill", json=body).json()
    assert close(answer, {"words": clearformer.fill(folders["bert"], text, candidates=["sees", "likes"])})
    response = client.post("/v1/fill", json={"model": "bert", "text": "no blank"})
    assert (response.status_code, "has 0 blanks" in response.text) == (400, True)


def test_alignment(client: TestClient) -> None:
    text = "Where is the station?"
    [row] = client.post("/v1/translate", json={"text": text, "align": True}).json()["translations"]
    expected = clearformer.load().align(text, row["translation"])
    assert row["source_tokens"] == expected.source
    assert row["links"] == [list(link) for link in expected.links()]


def test_no_model_reads_a_file_by_its_name(client: TestClient) -> None:
    for model in ("image_classifier", "recogniser"):
        response = client.post("/v1/embeddings", json={"model": model, "input": "/etc/passwd"})
        assert response.status_code in (400, 404)


def test_every_request_has_an_example_that_is_valid(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    from clearformer.serve import translate
    from clearformer.serve.v1 import chat, classify, completions, embeddings, fill, score

    bodies = [
        chat.ChatRequest,
        classify.ClassifyRequest,
        completions.CompletionRequest,
        embeddings.EmbeddingRequest,
        fill.FillRequest,
        score.ScoreRequest,
        translate.TranslateRequest,
    ]
    for kind in bodies:
        [example] = described["components"]["schemas"][kind.__name__]["examples"]
        kind.model_validate_json(json.dumps(example))
