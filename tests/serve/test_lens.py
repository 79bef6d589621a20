"""What a client sees inside a model is what the command and the library see."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer
from clearformer.lens.patches import zero_heads
from clearformer.lens.session import Lens
from clearformer.verbs.lens import VIEWS, list_activations, view

TEXT, TARGET = "Where is the station?", "Où est la gare ?"
TENSORS = {"accept": "application/vnd.safetensors"}


def test_views_are_those_of_the_command(client: TestClient) -> None:
    assert [row["name"] for row in client.get("/api/lens").json()["views"]] == list(VIEWS)
    answer = client.post("/api/lens/attention", json={"text": TEXT, "target": TARGET}).json()
    assert answer == json.loads(json.dumps(view("attention", text=TEXT, target=TARGET)))


def test_the_list_is_that_of_the_command(client: TestClient) -> None:
    answer = client.get("/api/lens/list", params={"pattern": "*.cross.q", "length": 7}).json()
    assert answer == list_activations(pattern="*.cross.q", length=7)


def test_a_view_with_heads_off(client: TestClient) -> None:
    body = {"text": TEXT, "target": TARGET, "layer": "decoder.blocks.2.cross"}
    before = client.post("/api/lens/attention", json=body).json()
    after = client.post("/api/lens/attention", json={**body, "off": ["encoder.blocks.0.attn[1,2]"]}).json()
    assert after["layers"][0]["rows"] == before["layers"][0]["rows"]
    assert after["layers"][0]["pattern"] != before["layers"][0]["pattern"]


@pytest.mark.parametrize("off", [[], ["encoder.blocks.1.attn[0,3]", "decoder.blocks.0.cross[2]"]])
def test_activations_are_exact(client: TestClient, off: list[str]) -> None:
    names = ["*.cross.pattern", "decoder.blocks.0.attn.q", "encoder.blocks.1.resid_post"]
    body = {"text": TEXT, "target": TARGET, "names": names, "off": off}
    response = client.post("/api/activations", json=body, headers=TENSORS)
    assert response.headers["content-type"] == TENSORS["accept"]
    tensors = safetensors.torch.load(response.content)
    handle = clearformer.load()
    put = {"encoder.blocks.1.attn.z": zero_heads(0, 3), "decoder.blocks.0.cross.z": zero_heads(2)} if off else {}
    with Lens(handle.model, put=put):
        look = handle.lens(TEXT, TARGET)
        assert len(tensors) == 5
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, look[name][0], atol=1e-4, rtol=1e-4)  # packed weights round differently
    values = client.post("/api/activations", json=body).json()
    for name, activation in values["activations"].items():
        assert torch.tensor(activation["values"]).equal(tensors[name])
        assert activation["shape"] == list(tensors[name].shape)
    cross, q = (values["activations"][name] for name in ("decoder.blocks.0.cross.pattern", "decoder.blocks.0.attn.q"))
    assert (cross["rows"], cross["columns"]) == (values["outputs"], values["source"])
    assert (q["rows"], q["columns"]) == (values["target"], None)
    assert values["predictions"] is None


def test_heads_and_thumbnails(client: TestClient) -> None:
    text = "The old man sees a dog and a cat in the garden of the house near the river, and he likes them all."
    names = ["decoder.blocks.1.cross.pattern[1]", "encoder.blocks.0.attn.pattern[3,0]"]
    body = {"text": text, "target": TARGET, "names": names}
    response = client.post("/api/activations", json={**body, "thumbnails": ["*.pattern"]}, headers=TENSORS)
    tensors = safetensors.torch.load(response.content)
    small = {name.removeprefix("thumbnails."): tensors.pop(name) for name in list(tensors) if "thumbnails" in name}
    assert (len(tensors), len(small)) == (2, 10)
    alone = safetensors.torch.load(client.post("/api/activations", json=body, headers=TENSORS).content)
    for name, tensor in alone.items():
        assert tensors[name].equal(tensor)
    look = clearformer.load().lens(text, TARGET)
    for name, one in tensors.items():
        heads = [1] if "cross" in name else [0, 3]
        torch.testing.assert_close(one, look[name][0, heads], atol=1e-4, rtol=1e-4)
        T, S = (-(-n // (-(-n // 22))) for n in one.shape[1:])  # groups of two, since the text has more than 22 tokens
        assert small[name].shape == (4, T, S)
        assert one.size(2) > S
        torch.testing.assert_close(small[name][:, 1, 1], groups(look[name][0], T, S), atol=1e-4, rtol=1e-4)
    values = client.post("/api/activations", json={**body, "names": [], "thumbnails": names}).json()
    assert values["activations"] == {}
    assert values["thumbnails"][names[0][:-3]]["shape"][0] == 1
    assert torch.tensor(values["thumbnails"][names[1][:-5]]["values"]).equal(small[names[1][:-5]][[0, 3]])


def groups(pattern: torch.Tensor, T: int, S: int) -> torch.Tensor:
    """The largest cells of the second group of rows and columns, (H,)."""
    n_rows, n_columns = -(-pattern.size(1) // T), -(-pattern.size(2) // S)
    return pattern[:, n_rows : 2 * n_rows, n_columns : 2 * n_columns].amax((1, 2))


def test_predictions_are_the_probabilities_of_the_translation(client: TestClient) -> None:
    body = {"text": TEXT, "target": TARGET, "names": [], "alternatives": 4}
    rows = client.post("/api/activations", json=body).json()["predictions"]
    logprob = torch.tensor([row["probability"] for row in rows], dtype=torch.float64).log().sum()
    assert float(logprob) == pytest.approx(clearformer.load().score(TEXT, TARGET), abs=1e-4)
    assert [row["token"] for row in rows][-1] == "<eos>"
    assert all(len(row["alternatives"]) == 4 for row in rows)


def test_no_request_writes_or_reads_a_file(client: TestClient, tmp_path: Path) -> None:
    out = tmp_path / "map.html"
    response = client.post("/api/lens/attention", json={"text": TEXT, "out": str(out)})
    assert response.status_code == 400
    assert "no option `out`" in response.json()["error"]["message"]
    assert not out.exists()
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXT)
    response = client.post("/api/lens/heads", json={"texts": str(texts)})
    assert response.status_code == 400
    assert "no option `texts`" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/lens/atention", {"text": TEXT}, "there is no view called `atention`"),
        ("/api/lens/attention", {}, "the view `attention` needs TEXT"),
        ("/api/activations", {"text": TEXT, "names": ["nothing.*"]}, "no activation is called `nothing.*`"),
        ("/api/activations", {"text": TEXT, "names": "all"}, "names: input should be a valid list"),
    ],
)
def test_mistakes_are_explained(client: TestClient, path: str, body: dict[str, Any], message: str) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_too_many_numbers_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.activations.MOST_NUMBERS", 1000)
    response = client.post("/api/activations", json={"text": TEXT, "names": ["*"]})
    assert response.status_code == 400
    assert "at most 1,000" in response.json()["error"]["message"]


def test_a_bug_is_answered_in_json(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("private details")

    monkeypatch.setattr("clearformer.serve.lens.read", fail)
    response = client.post("/api/activations", json={"text": TEXT, "names": []})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "bug"
    assert "private" not in response.text


def test_models_are_described_without_their_weights(
    client: TestClient, write_run: Callable[..., Path], headers_only: Callable[[], None]
) -> None:
    (write_run("broken", [], "[model]\nkind = 'no-such'\n") / "model.safetensors").touch()
    headers_only()
    answer = client.get("/api/models").json()
    models = {model["name"]: model for model in answer["models"]}
    assert answer["default"] == "en-fr-small"
    assert models["en-fr-small"]["task"] == "translation"
    assert "translate" in models["en-fr-small"]["verbs"]
    assert models["runs/broken"]["problem"]


@pytest.mark.parametrize("length", [-73501, 0, 10**12])
def test_a_length_that_no_example_has_is_a_sentence(client: TestClient, length: int) -> None:
    response = client.get("/api/lens/list", params={"length": length})
    assert response.status_code == 400
    assert "choose 1 to 100,000" in response.json()["error"]["hint"]
