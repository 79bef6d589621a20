"""Texts, images and recordings by HTTP: the numbers of the handles, and a sentence for every bad file."""

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer
from clearformer.data.image_sample import ImageSample
from clearformer.lens import features, filters, rollout
from clearformer.lens.grad_cam import explain
from clearformer.lens.reading import read
from clearformer.serve.app import create_app
from clearformer.serve.limits import Limits
from clearformer.serve.store import Store
from clearformer.serve.uploads import MOST_PIXELS, opened_file
from clearformer.verbs.lens import view

from .media_models import as_png, stripes, tone, write_media

HERE = "http://127.0.0.1:8137"
TEXT = "the fine film about a house"
PNG, WAV = as_png(stripes(True, 1)), tone("low high")


@pytest.fixture(scope="session")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_media(tmp_path_factory.mktemp("media"))


@pytest.fixture(scope="session")
def client(media: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Store(runs=media), None), base_url=HERE, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def handle(media: Path) -> Callable[[str], Any]:
    """Models as the server opens them, with unpacked weights."""
    from clearformer.loading.open import handle_of, open_model

    handles: dict[str, Any] = {}
    return lambda name: handles.setdefault(name, handle_of(open_model(media / name)))


def send(client: TestClient, look: str, body: bytes, **query: Any) -> Any:
    return client.post(f"/api/files/{look}", content=body, params=query)


def pixels(image: bytes = PNG) -> np.ndarray:
    """The pixels of a file of 16 × 16 pixels, uint8 (1, 16, 16)."""
    return np.array(Image.open(io.BytesIO(image)))[None]


def sample() -> ImageSample:
    return ImageSample(pixels()[None], [""])


def same(answer: Any, expected: Any) -> None:
    """Equal but for the rounding of a float32 computed in another batch or thread."""
    assert json.loads(json.dumps(expected), parse_float=lambda text: None) == json.loads(
        json.dumps(answer), parse_float=lambda text: None
    )
    floats: list[list[float]] = [[], []]
    for value, found in zip((answer, expected), floats):
        json.loads(json.dumps(value), parse_float=lambda text, found=found: found.append(float(text)))
    np.testing.assert_allclose(*floats, rtol=1e-4, atol=1e-5)


# --- texts


def test_all_classes_of_a_text(client: TestClient, handle: Any) -> None:
    answer = client.post("/api/classify", json={"text": TEXT, "model": "runs/reviews"}).json()
    same(answer, {"texts": [handle("reviews").predict(TEXT, top=2)]})
    [row] = answer["texts"]
    assert [one["label"] for one in row["top"]] == ["good", "bad"]
    assert sum(one["probability"] for one in row["top"]) == pytest.approx(1)


def test_a_tagger_has_classes_for_each_word(client: TestClient, handle: Any) -> None:
    answer = client.post("/api/classify", json={"text": TEXT, "model": "runs/tags"}).json()
    same(answer, {"texts": [handle("tags").predict(TEXT, top=2)]})
    assert [word["word"] for word in answer["texts"][0]["words"]] == TEXT.split()


def test_attribution_speaks_for_the_class_that_the_word_decides(client: TestClient) -> None:
    answer = client.post("/api/lens/attribution", json={"text": TEXT, "model": "runs/reviews"}).json()
    for_good = answer["integrated"][answer["outputs"].index("good")]
    assert answer["inputs"][int(np.argmax(for_good))] == "fine"


def test_attribution_of_a_pair_and_of_a_word(client: TestClient, handle: Any) -> None:
    pair = ["the fine film", "a dull story"]
    body = {"text": "\t".join(pair), "model": "runs/same"}
    answer = client.post("/api/lens/attribution", json=body).json()
    assert answer["outputs"] == ["alike", "other"]
    assert answer["logits"] == pytest.approx(handle("same").logits(*pair).tolist(), rel=1e-4, abs=1e-5)
    assert len(answer["inputs"]) == len(answer["integrated"][0]) > 6
    response = client.post("/api/lens/attribution", json={**body, "text": "the fine film"})
    assert response.status_code == 400
    assert "is not a pair of texts" in response.json()["error"]["message"]
    body = {"text": TEXT, "model": "runs/tags", "position": 1}
    answer = client.post("/api/lens/attribution", json=body).json()
    assert answer["outputs"] == ["B", "O"]
    assert answer["logits"] == pytest.approx(handle("tags").logits([TEXT])[1].tolist(), rel=1e-4, abs=1e-5)


def test_classes_and_calibration(client: TestClient, media: Path) -> None:
    facts = client.get("/api/classes", params={"model": "runs/reviews"}).json()
    assert (facts["input"], facts["classes"], facts["is_pair"]) == ("text", ["bad", "good"], False)
    assert (facts["calibration"], facts["temperature"]) == (None, 1)
    assert facts["command"] == f"clearformer evaluate --model {media / 'reviews'} --labels test.tsv --calibrate"
    facts = client.get("/api/classes", params={"model": "runs/stripes"}).json()
    saved = json.loads((media / "stripes" / "calibration.json").read_text())
    assert facts["calibration"] == saved
    assert facts["temperature"] == saved["temperature"] != 1
    assert facts["input"] == "image"
    bins = saved["reliability"]
    n = sum(row["examples"] for row in bins)
    assert n == saved["images"] == sum(row["examples"] for row in saved["reliability_uncalibrated"])
    gaps = [row["examples"] / n * abs(row["accuracy"] - row["confidence"]) for row in bins]
    assert sum(gaps) == pytest.approx(saved["ece"])


def test_other_models_cannot_classify(client: TestClient) -> None:
    for response in (
        client.post("/api/classify", json={"text": TEXT}),
        client.get("/api/classes", params={"model": "runs/tones"}),
    ):
        assert response.status_code == 404
        assert "cannot classify" in response.json()["error"]["message"]


# --- images


def test_all_classes_of_an_image(client: TestClient, handle: Any) -> None:
    stripes = handle("stripes")
    answer = send(client, "classify", PNG, model="runs/stripes").json()
    same(answer, {"images": [stripes.predict(pixels(), top=2)]})
    assert answer["images"][0]["label"] == "vertical"
    logits = stripes.logits(pixels()[None])[0]
    expected = (logits / stripes.temperature).softmax(-1).max()  # calibrated, as the command
    assert answer["images"][0]["probability"] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("label", [None, "horizontal", "vertical"])
@pytest.mark.parametrize("layer", [None, "stem"])
def test_grad_cam_for_any_class(client: TestClient, handle: Any, label: str | None, layer: str | None) -> None:
    options = {name: value for name, value in {"label": label, "layer": layer}.items() if value}
    answer = send(client, "grad-cam", PNG, model="runs/stripes", **options).json()
    same(answer, explain(handle("stripes"), sample(), layer, label))
    assert np.shape(answer["heat"]) == ((1, 16, 16) if layer else (1, 8, 8))
    assert answer["captions"][0].split()[0] == (label or "vertical")


def test_rollout_features_and_filters(client: TestClient, handle: Any) -> None:
    patches, resnet = handle("patches"), handle("stripes")
    same(send(client, "rollout", PNG, model="runs/patches").json(), rollout.follow(patches, sample()))
    answer = send(client, "features", PNG, model="runs/stripes", layer="stages.1.0").json()
    same(answer, features.look(resnet, sample(), "stages.1.0"))
    assert "stem" in answer["layers"]
    same(client.get("/api/filters", params={"model": "runs/stripes"}).json(), filters.look(resnet))


def test_reconstruction(client: TestClient, handle: Any) -> None:
    coder = handle("coder")
    answer = send(client, "reconstruction", PNG, model="runs/coder").json()
    assert answer["error"] == pytest.approx(float(coder.errors(pixels()[None])[0]), rel=1e-4)
    expected = (255 * coder.reconstruct(pixels()[None])).clamp(0, 255)[0, 0]
    assert (torch.tensor(answer["reconstruction"]) - expected).abs().max() <= 0.51  # rounded
    assert answer["image"] == pixels()[0].tolist()


def test_looks_are_those_that_answer(client: TestClient) -> None:
    expected = {
        "stripes": ["classify", "grad-cam", "features", "filters"],
        "patches": ["classify", "grad-cam", "rollout", "features", "filters"],
        "coder": ["features", "reconstruction", "filters"],
    }
    for name, looks in expected.items():
        model = f"runs/{name}"
        assert client.get("/api/looks", params={"model": model}).json()["looks"] == looks
        for look in ("classify", "grad-cam", "rollout", "features", "reconstruction"):
            response = send(client, look, PNG, model=model)
            assert (response.status_code == 200) == (look in looks), (name, look, response.text)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_every_format_and_size(client: TestClient, format: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (37, 61), (200, 10, 10)).save(file, format)
    response = send(client, "classify", file.getvalue(), model="runs/stripes")
    assert response.status_code == 200, response.text


def test_any_view_of_an_image_model(client: TestClient, handle: Any) -> None:
    answer = send(client, "lens/attention", PNG, model="runs/patches", layer="encoder.blocks.1.attn").json()
    same(answer, view("attention", handle("patches"), pixels(), layer="encoder.blocks.1.attn"))


def field(size: int, step: int) -> dict[str, int]:
    return {"size": size, "step": step}


def test_activations_of_an_image(client: TestClient, handle: Any) -> None:
    names = ["stem.conv.out", "stages.1.0.out", "out"]
    answer = send(client, "activations", PNG, model="runs/stripes", names=names).json()
    reading = read(handle("stripes"), pixels())
    _, look = reading.look(names)
    for name in names:
        one = answer["activations"][name]
        assert one["shape"] == list(look[name].shape[1:])
        np.testing.assert_allclose(one["values"], look[name][0], rtol=1e-4, atol=1e-5)
    assert answer["image"] == pixels()[0].tolist()
    fields = {name: one["field"] for name, one in answer["activations"].items()}
    stages = 3 + 2 + 2 + 2 + 4  # stem 3 × 3; two filters of 3; one of stride 2, then one whose steps are 2 pixels
    assert fields == {
        "stem.conv.out": {"size": 3, "step": 1},
        "stages.1.0.out": {"size": stages, "step": 2},
        "out": None,
    }


def test_activations_of_a_vision_transformer_and_of_a_recording(client: TestClient, handle: Any) -> None:
    names = "encoder.blocks.1.attn.pattern[0,3]"
    one = send(client, "activations", PNG, model="runs/patches", names=names).json()["activations"][names[:-5]]
    patches = ["<class>", *(f"patch {i}" for i in range(16))]
    assert (one["shape"], one["rows"], one["columns"], one["field"]) == ([2, 17, 17], patches, patches, None)
    np.testing.assert_allclose(np.sum(one["values"], -1), 1, atol=1e-5)
    response = client.post(
        "/api/files/activations",
        content=WAV,
        params={"model": "runs/tones", "names": ["layers.l0.h", "subsample.convs.1.out"]},
        headers={"accept": "application/vnd.safetensors"},
    )
    _, look = read(handle("tones"), opened_file(handle("tones"), WAV)).look(["layers.l0.h"])
    tensors = load(response.content)
    torch.testing.assert_close(tensors["layers.l0.h"], look["layers.l0.h"][0])
    length = int.from_bytes(response.content[:8], "little")
    values = json.loads(json.loads(response.content[8 : 8 + length])["__metadata__"]["values"])
    frames = values["target"]
    assert frames[1] == "0.06 s"
    assert values["activations"]["layers.l0.h"]["rows"] == frames
    assert values["activations"]["subsample.convs.1.out"]["columns"] == frames  # channels first
    assert "image" not in values


def test_activations_by_file_are_refused_with_a_sentence(client: TestClient) -> None:
    response = send(client, "activations", PNG, model="runs/reviews", names="*")
    assert "it reads texts, not files" in response.json()["error"]["message"]
    response = send(client, "activations", PNG, model="runs/stripes", names="nothing.at.all")
    assert response.json()["error"]["message"] == "no activation is called `nothing.at.all`"
    assert len(response.json()["error"]["hint"]) < 400


# --- recordings


def test_ctc_of_a_recording(client: TestClient, handle: Any, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(WAV)
    tones = handle("tones")
    answer = send(client, "lens/ctc", WAV, model="runs/tones").json()
    same(answer, view("ctc", tones, str(tmp_path / "a.wav")))
    transcript = clearformer.load(tones.path).transcribe(tmp_path / "a.wav")
    assert answer["transcript"] == transcript.text == "low high"
    assert [one["word"] for one in answer["words"]] == [word.word for word in transcript.words]


def test_another_rate_and_other_formats(client: TestClient) -> None:
    assert send(client, "lens/ctc", tone("high low", 8000), model="runs/tones").json()["transcript"] == "high low"
    soundfile = pytest.importorskip("soundfile")
    samples, rate = soundfile.read(io.BytesIO(WAV))
    for format in ("FLAC", "OGG", "AIFF"):
        file = io.BytesIO()
        soundfile.write(file, samples, rate if format != "OGG" else 8000, format=format)
        assert send(client, "lens/ctc", file.getvalue(), model="runs/tones").status_code == 200, format


# --- examples


def test_examples_are_files_of_the_validation_data(client: TestClient, media: Path) -> None:
    from clearformer.data.image_store import ImageStore

    found = client.get("/api/examples", params={"model": "runs/stripes"}).json()["examples"]
    store = ImageStore(media / "stripes" / "data" / "valid.safetensors")
    assert len(found) == 8
    for one in found:
        response = client.get(f"/api/examples/{one['index']}", params={"model": "runs/stripes"})
        assert response.headers["content-type"] == "image/png"
        np.testing.assert_array_equal(pixels(response.content), store.pixels[one["index"]])
        assert one["name"] == ("horizontal", "vertical")[store.classes[one["index"]]]
        answer = send(client, "classify", response.content, model="runs/stripes").json()
        assert answer["images"][0]["image"] == "pixels (1, 16, 16)"


def test_examples_of_recordings_are_wav_files(client: TestClient) -> None:
    found = client.get("/api/examples", params={"model": "runs/tones"}).json()["examples"]
    assert found
    response = client.get(f"/api/examples/{found[0]['index']}", params={"model": "runs/tones"})
    assert response.headers["content-type"] == "audio/wav"
    assert send(client, "lens/ctc", response.content, model="runs/tones").json()["transcript"] == found[0]["name"]


@pytest.mark.parametrize("model", ["runs/patches", "runs/reviews", "en-fr-small"])
def test_models_without_examples(client: TestClient, model: str) -> None:
    assert client.get("/api/examples", params={"model": model}).json() == {"examples": []}
    response = client.get("/api/examples/0", params={"model": model})
    assert response.status_code == 400


# --- what is refused


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(side: int) -> bytes:
    """A PNG file whose header claims side × side pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(/etc/passwd) (r) file\nshowpage\n%%EOF\n"
LONG = b"RIFF" + struct.pack("<I", 36 + 2**20) + WAV[8:40] + struct.pack("<I", 2**20) + bytes(2**20)  # 262 s at 2 kHz


@pytest.mark.parametrize(
    ("path", "model", "body", "message"),
    [
        ("classify", "stripes", b"not an image", "the image cannot be read: it is damaged or not an image"),
        ("classify", "stripes", PNG[:90], "the image cannot be read: it is damaged or not an image"),
        ("classify", "stripes", EPS, "the image cannot be read: it is damaged or not an image"),
        ("classify", "stripes", b"/etc/passwd", "the image cannot be read"),
        ("grad-cam", "stripes", bomb(7000), f"the image has more than {MOST_PIXELS:,} pixels"),
        ("grad-cam", "stripes", bomb(30000), f"the image has more than {MOST_PIXELS:,} pixels"),
        ("classify", "stripes", b"", "the request has no file"),
        ("classify", "reviews", PNG, "it reads no images"),
        ("classify", "coder", PNG, "it cannot classify"),
        ("reconstruction", "stripes", PNG, "it reconstructs no images"),
        ("rollout", "stripes", PNG, "has no attention layers"),
        ("everything", "stripes", PNG, "there is no view of an image called `everything`"),
        ("lens/ctc", "tones", b"not a recording", "the recording is not a recording in a supported format"),
        ("lens/ctc", "tones", WAV[:3000], "the recording is truncated"),
        ("lens/ctc", "tones", WAV[:50], "the recording is truncated"),
        ("lens/ctc", "tones", b"RIFF" + bytes(40), "the recording"),
        ("lens/ctc", "tones", LONG, "the recording is longer than 60 s"),
        ("lens/ctc", "tones", PNG, "the recording is not a recording in a supported format"),
        ("lens/ctc", "stripes", PNG, "which has no CTC output"),
        ("lens/ctc", "reviews", PNG, "it reads texts, not files"),
        ("lens/nothing", "tones", WAV, "there is no view called `nothing`"),
        ("lens/heads", "tones", WAV, ""),
    ],
)
def test_a_bad_file_is_a_sentence(client: TestClient, path: str, model: str, body: bytes, message: str) -> None:
    response = send(client, path, body, model=f"runs/{model}")
    assert response.status_code in (400, 404), response.text
    error = response.json()["error"]
    assert message in error["message"]
    assert error["type"] not in ("Bug", "InvalidRequest")
    assert "\n" not in error["message"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"label": "diagonal"}, "has no class `diagonal`"),
        ({"layer": "nowhere"}, "there is no layer `nowhere` with feature maps"),
        ({"path": "/etc/passwd"}, "there is no parameter `path`"),
        ({"model": "../stripes"}, "there is no model called `../stripes`"),
    ],
)
def test_bad_options_are_sentences(client: TestClient, query: dict[str, str], message: str) -> None:
    response = send(client, "grad-cam", PNG, **{"model": "runs/stripes", **query})
    assert response.status_code in (400, 404)
    assert message in response.json()["error"]["message"]


def test_a_form_or_json_is_not_a_file(client: TestClient) -> None:
    response = client.post("/api/files/classify", json={"file": "/etc/passwd"}, params={"model": "runs/stripes"})
    assert response.status_code == 400
    assert "the body is application/json, not a file" in response.json()["error"]["message"]


def test_only_files_may_be_large(client: TestClient) -> None:
    most = Limits().upload
    body = PNG + bytes(Limits().body)  # what follows the end of a PNG file is ignored
    assert send(client, "classify", body, model="runs/stripes").status_code == 200
    assert client.post("/api/classify", content=body).status_code == 413
    response = send(client, "classify", bytes(most + 1), model="runs/stripes")
    assert response.status_code == 413
    assert f"more than {most:,} bytes" in response.json()["error"]["message"]

    def chunks() -> Iterator[bytes]:
        for _ in range(17):
            yield bytes(most // 16)

    response = client.post("/api/files/classify", content=chunks(), params={"model": "runs/stripes"})
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/lens/attention", {"text": "/etc/passwd", "model": "runs/patches"}),
        ("/api/activations", {"text": "/etc/passwd", "model": "runs/tones", "names": ["*"]}),
        ("/api/classify", {"text": "/etc/passwd", "model": "runs/stripes"}),
        ("/api/lens/probe", {"texts": "/etc/passwd", "model": "runs/reviews"}),
        ("/api/lens/heads", {"texts": "/etc/passwd", "model": "runs/reviews"}),
    ],
)
def test_no_text_is_the_name_of_a_file(client: TestClient, path: str, body: dict[str, Any]) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "it reads a file, and no text" in message or "no option `texts`" in message
    assert "passwd" not in message


def test_images_and_sounds_may_come_from_the_page_alone(client: TestClient) -> None:
    policy = client.get("/health").headers["content-security-policy"]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["img-src"] == "'self' data:"
    assert parts["media-src"] == "'self' blob:"
    assert parts["default-src"] == "'self'"
