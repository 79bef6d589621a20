"""Health, measurements, logs, limits, memory and models that change while a server runs."""

import io
import json
import re
import shutil
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
import small_models
import torch
from fastapi.testclient import TestClient

from clearformer.serve import metrics, pressure
from clearformer.serve.app import create_app
from clearformer.serve.limits import Limits
from clearformer.serve.logs import Logs
from clearformer.serve.store import Store

HERE = "http://127.0.0.1:8137"
TEXT = "The dog sees a tree"


def caller(app: Any) -> TestClient:
    return TestClient(app, base_url=HERE, raise_server_exceptions=False)


def test_health_says_if_an_engine_is_stuck(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.open("gpt")
    with caller(create_app(store)) as client:
        assert client.get("/health").json() == {"status": "ok"}
        monkeypatch.setattr(type(store.open("gpt").engine), "is_stuck", property(lambda engine: True))
        response = client.get("/health")
    assert response.status_code == 503
    assert response.json()["status"] == "stuck"
    assert "gpt" in response.json()["models"]


def test_ready_once_all_models_are_in_memory(folders: dict[str, Path]) -> None:
    store = Store([folders["gpt"]])
    app = create_app(store)
    with caller(app) as client:
        assert (client.get("/ready").status_code, client.get("/ready").json()["models"]) == (503, ["gpt"])
        store.open("gpt")
        assert client.get("/ready").json() == {"status": "ok"}
        app.state.traffic.is_draining = True
        assert (client.get("/ready").status_code, client.get("/health").status_code) == (503, 200)
        response = client.post("/v1/completions", json={"prompt": "a"})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
        assert response.headers["retry-after"].isdecimal()
        assert response.headers["connection"] == "close"
    store.close()


def test_metrics_count_requests_tokens_and_times(store: Store) -> None:
    with caller(create_app(store)) as client:
        body = {"model": "gpt", "prompt": TEXT, "max_tokens": 5, "temperature": 0}
        usage = client.post("/v1/completions", json=body).json()["usage"]
        client.post("/v1/completions", json={**body, "prompt": 3})
        response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = metrics.parse(response.text)
    here = 'method="POST",path="/v1/completions"'
    assert values[f'clearformer_http_requests_total{{{here},status="200"}}'] == 1
    assert values[f'clearformer_http_requests_total{{{here},status="400"}}'] == 1
    assert values['clearformer_generation_tokens_total{model_name="gpt"}'] == usage["completion_tokens"]
    assert values['clearformer_time_to_first_token_seconds_count{model_name="gpt"}'] == 1
    assert values['clearformer_time_to_first_token_seconds_bucket{model_name="gpt",le="+Inf"}'] == 1
    assert values['clearformer_num_requests_running{model_name="gpt"}'] == 0
    assert values['clearformer_num_requests_waiting{model_name="gpt"}'] == 0
    assert values["clearformer_resident_memory_bytes"] > 1e7
    names = {line.split()[2] for line in response.text.splitlines() if line.startswith("# TYPE")}
    assert all(any(name.startswith(known) for known in names) for name in values)


def test_metrics_count_the_ends_of_sequences(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.asking.PATIENCE", 0.1)

    def fail(*arguments: Any) -> None:
        raise RuntimeError

    with caller(create_app(store)) as client:

        def counts(model: str) -> dict[str, float]:
            values = metrics.parse(client.get("/metrics").text)
            pattern = re.compile(r'clearformer_request_success_total\{finished_reason="(\w+)",model_name="(.*)"\}')
            found = {pattern.fullmatch(name): value for name, value in values.items()}
            return {match[1]: value for match, value in found.items() if match and match[2] == model}

        body = {"model": "gpt", "prompt": [TEXT, "A"], "max_tokens": 1, "n": 2, "seed": 3}
        for more in ({}, {"stream": True}, {"logprobs": 1}):
            assert client.post("/v1/completions", json={**body, **more}).status_code == 200
        assert counts("gpt") == {"length": 12}
        assert client.post("/v1/translate", json={"text": ["Hello.", ""], "beam": 2, "n": 2}).status_code == 200
        assert counts("en-fr-small") == {"stop": 4}
        monkeypatch.setattr("clearformer.handles.scorer.Scorer.score_each", fail)
        assert client.post("/v1/score", json={"model": "gpt", "text": "a"}).status_code == 500
        assert counts("gpt") == {"length": 12, "error": 1}
    with caller(create_app(store, limits=Limits(seconds=0.2))) as client, store.open("gpt").use():
        assert client.post("/v1/completions", json=body).status_code == 504
        assert counts("gpt") == {"abort": 2}


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = metrics.Histogram("seconds", "", (0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.add(value, model='a"b\\')
    lines = list(histogram.lines())
    label = 'model="a\\"b\\\\"'
    assert lines == [
        f'clearformer_seconds_bucket{{{label},le="0.1"}} 2',
        f'clearformer_seconds_bucket{{{label},le="1"}} 3',
        f'clearformer_seconds_bucket{{{label},le="+Inf"}} 4',
        f"clearformer_seconds_sum{{{label}}} 7.65",
        f"clearformer_seconds_count{{{label}}} 4",
    ]


@pytest.mark.parametrize("has_texts", [False, True])
def test_the_log_has_a_line_per_request(store: Store, has_texts: bool) -> None:
    stream = io.StringIO()
    with caller(create_app(store, logs=Logs(stream, has_texts))) as client:
        for path, body in (
            ("/v1/completions", {"prompt": TEXT, "max_tokens": 3, "model": "gpt"}),
            ("/v1/translate", {"text": TEXT}),
            ("/v1/score", {"text": TEXT, "model": "gpt"}),
        ):
            response = client.post(path, json=body, headers={"X-Request-Id": "abc-123"})
            assert response.headers["x-request-id"] == "abc-123"
        answers = [client.get("/health", headers={"X-Request-Id": bad}) for bad in ("a b", "x" * 200, "")]
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row["id"] for row in rows[:3]] == ["abc-123"] * 3
    assert [row["status"] for row in rows] == [200] * 6
    assert [answer.headers["x-request-id"] for answer in answers] == [row["id"] for row in rows[3:]]
    assert len({row["id"] for row in rows}) == 4
    assert rows[0]["model"] == "gpt"
    assert rows[0]["completion_tokens"] > 0
    assert (TEXT in stream.getvalue()) == has_texts


def test_a_bug_is_logged_with_its_traceback(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("private details")

    stream = io.StringIO()
    monkeypatch.setattr("clearformer.handles.scorer.Scorer.score_each", fail)
    with caller(create_app(store, logs=Logs(stream))) as client:
        response = client.post("/v1/score", json={"text": TEXT, "model": "gpt"})
        assert client.post("/v1/completions", json={"prompt": TEXT, "model": "gpt"}).status_code == 200
    assert (response.status_code, response.json()["error"]["code"]) == (500, "bug")
    assert "private" not in response.text
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row["event"] for row in rows] == ["bug", "request", "request"]
    assert "private details" in rows[0]["traceback"]


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}])
def test_a_request_that_takes_too_long(store: Store, monkeypatch: pytest.MonkeyPatch, more: dict[str, int]) -> None:
    monkeypatch.setattr("clearformer.serve.asking.PATIENCE", 0.1)
    opened = store.open("gpt")
    with caller(create_app(store, limits=Limits(seconds=0.2))) as client, opened.use():
        begin = time.monotonic()
        response = client.post("/v1/completions", json={"model": "gpt", "prompt": TEXT, **more})
        assert time.monotonic() - begin < 60
    assert (response.status_code, response.json()["error"]["type"]) == (504, "timeout_error")
    assert opened.engine.n_waiting + opened.engine.n_running <= 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"model": "gpt", "prompt": TEXT}),
        ("/v1/chat/completions", {"model": "gpt", "messages": [{"role": "user", "content": TEXT}]}),
        ("/v1/translate", {"model": "en-fr-small", "text": TEXT}),
        ("/v1/translate", {"model": "en-fr-small", "text": TEXT, "off": ["decoder.blocks.0.cross[0]"]}),
    ],
)
def test_a_stream_of_a_stuck_engine_ends_with_an_event(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    from clearformer.serve.work import Call

    monkeypatch.setattr("clearformer.serve.asking.PATIENCE", 0.1)
    store = Store([folders["gpt"]] if body["model"] == "gpt" else ["en-fr-small"], timeout=0.2)
    opened, begun, release = store.open(), threading.Event(), threading.Event()
    stuck = opened.engine.submit(Call(lambda handle: begun.set() or release.wait(60)))
    assert begun.wait(20)
    progress = opened.engine.watchdog.progress
    with caller(create_app(store, limits=Limits(seconds=0.2))) as client:
        response = client.post(path, json={**body, "stream": True})
    assert response.status_code == 200
    problem, done = response.text.strip().split("\n\n")[-2:]
    assert done == "data: [DONE]"
    error = json.loads(problem.split("data: ")[1])
    error = error.get("error", error)
    assert (error["code"], error["type"]) == ("timeout", "timeout_error")
    assert (stuck.is_done, opened.engine.n_visitors) == (False, 0)
    assert opened.engine.watchdog.progress == progress  # the watchdog is not told otherwise
    release.set()
    stuck.result(20)
    store.close()


def test_a_full_queue(folders: dict[str, Path]) -> None:
    from clearformer.serve.work import Call

    store = Store([folders["gpt"]], queue=2)
    opened = store.open()
    with caller(create_app(store)) as client:
        with opened.use():
            tickets = [opened.engine.submit(Call(lambda handle: 1)) for _ in range(2)]
            response = client.post("/v1/completions", json={"prompt": TEXT})
        assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_full")
        assert int(response.headers["retry-after"]) >= 1
        assert [ticket.result(10) for ticket in tickets] == [[[1]], [[1]]]
        assert client.post("/v1/completions", json={"prompt": TEXT}).status_code == 200
    store.close()


def test_memory_pressure(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with caller(create_app(store, limits=Limits(free_memory=10**15))) as client:
        response = client.post("/v1/completions", json={"model": "gpt", "prompt": TEXT})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "memory")
        assert client.get("/health").status_code == 200

    def exhaust(*arguments: Any) -> None:
        torch.empty(2**60)

    monkeypatch.setattr("clearformer.handles.scorer.Scorer.score_each", exhaust)
    with caller(create_app(store)) as client:
        response = client.post("/v1/score", json={"text": TEXT, "model": "gpt"})
        assert (response.status_code, "not enough memory" in response.text) == (503, True)


def test_free_memory_is_that_of_the_control_group(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert pressure.free_memory(tmp_path / "meminfo", tmp_path) == 5000 * 1024
    for name, text in (("memory.max", "3000000"), ("memory.current", "2500000"), ("memory.stat", "inactive_file 7\n")):
        (tmp_path / name).write_text(text)
    assert pressure.free_memory(tmp_path / "meminfo", tmp_path) == 500_007
    (tmp_path / "memory.max").write_text("max")
    assert pressure.free_memory(tmp_path / "meminfo", tmp_path) == 5000 * 1024
    assert pressure.free_memory(tmp_path / "none", tmp_path / "none") is None


def test_models_by_name(client: TestClient) -> None:
    rows = client.get("/v1/models").json()["data"]
    for row in rows:
        assert client.get(f"/v1/models/{row['id']}").json() == row
    for name in ("", "gtp"):
        response = client.get(f"/v1/models/{name}")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_unknown_parameters_are_named(client: TestClient) -> None:
    for path, body, param, hint in (
        ("/v1/completions", {"prompt": "a", "max_tokns": 1}, "max_tokns", "did you mean `max_tokens`?"),
        ("/v1/completions", {"prompt": "a", "stream_options": {"usage": 1}}, "stream_options.usage", "include_usage"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "contents": ""}]}, "messages.0.contents", "`content`"),
        ("/v1/embeddings", {"input": "a", "encoding": "float"}, "encoding", "`encoding_format`"),
    ):
        response = client.post(path, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, "unknown_parameter", param)
        assert hint in error["hint"]
    response = client.get("/v1/models", params={"limit": 3})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "limit")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/translate", {"text": TEXT * 90}),
        ("/v1/translate", {"text": [TEXT, TEXT * 90], "align": True}),
        ("/v1/completions", {"prompt": TEXT * 90, "model": "gpt"}),
        ("/v1/score", {"source": TEXT, "text": TEXT * 90}),
        ("/api/activations", {"text": TEXT * 90, "names": []}),
        ("/api/activations", {"text": TEXT, "target": TEXT * 90, "names": []}),
    ],
)
def test_a_text_that_is_longer_than_the_model_reads_is_not_cut(client: TestClient, path: str, body: Any) -> None:
    response = client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "too_long")


@pytest.mark.parametrize("has_texts", [False, True])
def test_warnings_are_logged_as_json(has_texts: bool) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = Logs(stream, has_texts).warn
        warnings.warn(f"{TEXT} has 9 tokens", stacklevel=1)
    (row,) = map(json.loads, stream.getvalue().splitlines())
    assert (row["event"], row["level"], row["category"]) == ("warning", "warning", "UserWarning")
    assert (TEXT in str(row)) == has_texts


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"text": "\\ud800"}', b'{"\\ud800": 1}', b"[" * 9999])
def test_bodies_that_are_no_request(client: TestClient, content: bytes) -> None:
    response = client.post("/v1/translate", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_a_model_that_changes_is_read_again(tmp_path: Path) -> None:
    """Requests of the old weights and of the new ones are all answered."""
    store = Store([small_models.write_gpt(tmp_path / "gpt", seed=1)])
    other = small_models.write_gpt(tmp_path / "other", seed=2)
    body = {"prompt": TEXT, "max_tokens": 8, "temperature": 0}
    with caller(create_app(store)) as client:
        old = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
        (other / "model.safetensors").replace(tmp_path / "gpt" / "model.safetensors")
        new = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
        assert new != old
        (tmp_path / "gpt" / "model.safetensors").write_bytes(b"half a file")
        response = client.post("/v1/completions", json=body)  # what is in memory still works
        assert response.json()["choices"][0]["text"] == new
        assert "model.safetensors" in store.open().problem
        shutil.rmtree(tmp_path / "gpt")
        assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == new
        assert client.get("/v1/models").json()["data"][0]["problem"]
        assert client.get("/health").status_code == 200
    store.close()


def test_a_vanished_folder_of_a_model_never_opened(tmp_path: Path) -> None:
    store = Store(["en-fr-small", small_models.write_gpt(tmp_path / "gpt")])
    shutil.rmtree(tmp_path / "gpt")
    with caller(create_app(store)) as client:
        response = client.post("/v1/completions", json={"model": "gpt", "prompt": TEXT})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
        assert client.post("/v1/translate", json={"text": "Hi."}).status_code == 200
    store.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"model": "gpt", "prompt": TEXT, "logprobs": 1}),
        ("/v1/chat/completions", {"model": "gpt", "messages": [{"role": "user", "content": TEXT}]}),
        ("/v1/translate", {"model": "en-fr-small", "text": TEXT}),
        ("/v1/translate", {"model": "en-fr-small", "text": TEXT, "off": ["decoder.blocks.0.cross[0]"]}),
    ],
)
def test_a_bug_ends_a_stream_with_an_event(
    store: Store, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("private details")

    for place in ("serve.v1.writing.Job.spell", "serve.translate.describe"):
        monkeypatch.setattr(f"clearformer.{place}", fail)
    stream = io.StringIO()
    with caller(create_app(store, logs=Logs(stream))) as client:
        response = client.post(path, json={**body, "stream": True})
    assert response.status_code == 200
    *_, problem, done = response.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    error = json.loads(problem.split("data: ")[1])
    error = error.get("error", error)
    assert (error["code"], error["type"]) == ("bug", "server_error")
    assert "private" not in response.text
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row["event"] for row in rows] == ["bug", "request"]
    assert "private details" in rows[0]["traceback"]
    assert (rows[0]["id"], rows[0]["path"]) == (rows[1]["id"], path)
