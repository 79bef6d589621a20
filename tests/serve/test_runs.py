"""Runs while they are written, removed or of another version: sentences, never a failure."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer
from clearformer.serve.runs import Tail, describe_run
from clearformer.training.journal import cut_back

WriteRun = Callable[..., Path]


def train(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"step": step, "kind": "train", "loss": loss, "lr": 0.1}


def names(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [name for name, _ in events]


def test_a_run_is_described_by_its_last_records(client: TestClient, write_run: WriteRun) -> None:
    write_run("group/one", [train(5), {"step": 5, "kind": "valid", "bleu": 3.0}, train(10, 0.5)])
    runs = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    run = runs["group/one"]
    assert (run["step"], run["train"]["loss"], run["valid"]["bleu"]) == (10, 0.5, 3.0)
    assert (run["task"], run["is_live"], run["problem"]) == ("translation", True, None)


def test_a_finished_run_is_not_live(write_run: WriteRun) -> None:
    folder = write_run("finished", [train(5)])
    (folder / "report.json").write_text("{}")
    assert not describe_run("finished", folder)["is_live"]
    folder = write_run("interrupted", [train(5)])
    os.utime(folder / "metrics.jsonl", (1e9, 1e9))
    assert not describe_run("interrupted", folder)["is_live"]


@pytest.mark.parametrize(
    "recipe",
    ["[model]\nkind = 'from-the-future'\n", "[data\n", "[unknown]\nkey = 1\n", "\x00\x01", "[model]\nn_hdes = 1\n"],
)
def test_a_recipe_of_another_version_is_a_sentence(client: TestClient, write_run: WriteRun, recipe: str) -> None:
    write_run("future", [train(7)], recipe)
    runs = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert runs["future"]["step"] == 7  # its metrics are shown all the same
    assert runs["future"]["problem"]


def test_metrics_of_several_runs(client: TestClient, write_run: WriteRun) -> None:
    write_run("a", [train(1), train(2)])
    write_run("b", [train(3)])
    rows = client.get("/api/metrics", params={"run": ["a", "b"]}).json()["runs"]
    assert [(row["run"], [record["step"] for record in row["records"]]) for row in rows] == [("a", [1, 2]), ("b", [3])]
    response = client.get("/api/metrics", params={"run": "c"})
    assert response.status_code == 400
    assert "there is no run called `c`" in response.json()["error"]["message"]
    assert client.get("/api/metrics", params={"run": "../../etc"}).status_code == 400


def test_a_file_that_has_not_changed_is_not_opened(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run("quiet", [train(1)]) / "metrics.jsonl"
    tail, opened = Tail("quiet", path), []
    plain = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, *args, **options: opened.append(self) or plain(self, *args, **options)
    )
    assert names(tail.read_new()) == ["records"]
    assert tail.read_new() == tail.read_new() == []
    assert opened == [path]
    with plain(path, "a") as file:
        file.write(json.dumps(train(2)) + "\n")
    assert tail.read_new() == [("records", {"run": "quiet", "first": 1, "records": [train(2)]})]
    path.unlink()
    assert tail.read_new() == [("problem", {"run": "quiet", "message": "there are no metrics yet"})]
    path.write_text(json.dumps(train(1)) + "\n")
    assert names(tail.read_new()) == ["restart", "records", "problem"]


def test_a_growing_file_is_read_line_by_line(write_run: WriteRun) -> None:
    path = write_run("growing", [train(1)]) / "metrics.jsonl"
    tail = Tail("growing", path)
    assert tail.read() == [("records", {"run": "growing", "first": 0, "records": [train(1)]})]
    assert tail.read() == []
    with path.open("a") as file:
        file.write(json.dumps(train(2)) + "\n" + json.dumps(train(3))[:9])
    assert tail.read() == [("records", {"run": "growing", "first": 1, "records": [train(2)]})]
    with path.open("a") as file:
        file.write(json.dumps(train(3))[9:] + "\n")
    assert tail.read() == [("records", {"run": "growing", "first": 2, "records": [train(3)]})]
    assert tail.line == 3


def test_a_resumed_run_begins_again(write_run: WriteRun) -> None:
    path = write_run("resumed", [train(1), train(2), train(3)]) / "metrics.jsonl"
    tail = Tail("resumed", path)
    tail.read()
    cut_back(path, 2)
    assert tail.read() == [
        ("restart", {"run": "resumed"}),
        ("records", {"run": "resumed", "first": 0, "records": [train(1), train(2)]}),
    ]


def test_a_stream_continues_after_its_last_line(write_run: WriteRun) -> None:
    path = write_run("continued", [train(step) for step in range(5)]) / "metrics.jsonl"
    [(_, data)] = Tail("continued", path, skip=3).read()
    assert (data["first"], [record["step"] for record in data["records"]]) == (3, [3, 4])
    assert Tail("continued", path, skip=5).read() == []
    restarted = Tail("continued", path, skip=9).read()  # the run was started again in the meantime
    assert names(restarted) == ["restart", "records"]
    assert len(restarted[1][1]["records"]) == 5


def test_a_removed_folder_and_a_bad_line_are_sentences(write_run: WriteRun) -> None:
    path = write_run("removed", [train(1)]) / "metrics.jsonl"
    with path.open("a") as file:
        file.write("no json\n[1]\n" + json.dumps(train(2)) + "\n")
    tail = Tail("removed", path)
    (_, data), (_, problem) = tail.read()
    assert data["records"] == [train(1), train(2)]
    assert problem["message"] == "line 2 of metrics.jsonl is not a record of training"
    shutil.rmtree(path.parent)
    assert tail.read() == [("problem", {"run": "removed", "message": "the run folder has been removed"})]
    assert tail.read() == []
    path.parent.mkdir()
    assert tail.read()[0][1]["message"] == "there are no metrics yet"


def follow(client: TestClient, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]) -> list[str]:
    """The events of two runs, until all has been read once. Then the server stops."""
    plain = Tail.read_new

    def read_new(tail: Tail) -> Any:
        client.app.state.is_closing = True
        return plain(tail)

    monkeypatch.setattr(Tail, "read_new", read_new)
    monkeypatch.setattr("clearformer.serve.runs.POLL_SECONDS", 0.0)
    try:
        return client.get("/api/metrics", params={"run": ["p", "q"]}, headers=headers).text.strip().split("\n\n")
    finally:
        client.app.state.is_closing = False


def test_a_stream_has_its_position_in_every_event(
    client: TestClient, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run("p", [train(1), train(2)])
    write_run("q", [train(4)])
    headers = {"accept": "text/event-stream", "last-event-id": "1,0"}
    first, second, ready, done = follow(client, monkeypatch, headers)
    assert first.startswith("id: 2,0\nevent: records\n")
    assert second.startswith("id: 2,1\nevent: records\n")
    assert json.loads(first.split("data: ")[1])["records"] == [train(2)]
    assert ready == "event: ready\ndata: {}"
    assert done == "data: [DONE]"


def test_an_error_ends_a_stream_with_a_problem_of_its_runs(
    client: TestClient, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run("p", [train(1)])
    write_run("q", [train(4)])

    def fail(tail: Tail) -> Any:
        raise RuntimeError("private details")

    monkeypatch.setattr(Tail, "read", fail)
    first, second, done = follow(client, monkeypatch, {"accept": "text/event-stream"})
    for name, problem in (("p", first), ("q", second)):
        assert problem.startswith("event: problem\n")
        message = "an unexpected error: RuntimeError"
        assert json.loads(problem.split("data: ")[1]) == {"run": name, "message": message}
    assert done == "data: [DONE]"


def test_a_server_without_runs_says_so() -> None:
    from clearformer.serve.app import create_app
    from clearformer.serve.store import Store

    with TestClient(create_app(Store()), base_url="http://127.0.0.1:8137") as client:
        assert client.get("/api/runs").json() == {"folder": None, "runs": []}
        assert "no runs" in client.get("/api/metrics", params={"run": "a"}).json()["error"]["message"]


def test_samples_and_histograms(client: TestClient, write_run: WriteRun) -> None:
    folder = write_run("seen", [train(1)])
    assert client.get("/api/samples", params={"run": "seen"}).json() == {"run": "seen", "samples": []}
    assert client.get("/api/histograms", params={"run": "seen"}).json() == {"run": "seen", "steps": [], "layers": []}
    samples = [{"step": 10, "text": "un\n→ deux"}, {"step": 20, "text": "trois"}]
    lines = "".join(json.dumps(sample) + "\n" for sample in samples)
    (folder / "samples.jsonl").write_text(lines + '{"step": 30, "te')  # the last one is half-written
    assert client.get("/api/samples", params={"run": "seen"}).json()["samples"] == samples
    one = {"low": 0.0, "high": 1.0, "counts": [1, 2]}
    rows = [{"step": step, "weights": {"encoder": one}, "gradients": {}} for step in (10, 20)]
    (folder / "histograms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"st')
    values = client.get("/api/histograms", params={"run": "seen"}).json()
    assert (values["run"], values["steps"]) == ("seen", [10, 20])
    none = [None, None]  # no gradients; activations, which older versions do not record
    assert values["layers"] == [{"name": "encoder", "weights": [one, one], "gradients": none, "activations": none}]
    (folder / "histograms.jsonl").write_text("nonsense\n")
    response = client.get("/api/histograms", params={"run": "seen"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "DataError")
    for path in ("samples", "histograms"):
        assert client.get(f"/api/{path}", params={"run": "../../etc"}).status_code == 400


def test_the_model_of_a_running_training_is_seen_at_work(tmp_path: Path) -> None:
    """Between two steps of a training, the lens shows the last saved weights; after the next save, the new ones."""
    from clearformer.serve.app import create_app
    from clearformer.serve.store import Store

    pairs = [("a cat", "un chat"), ("a dog", "un chien"), ("the cat", "le chat"), ("the dog", "le chien")] * 8
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_encoder_layers": 1, "n_decoder_layers": 1}
    settings: dict[str, Any] = {f"model.{name}": value for name, value in sizes.items()} | {
        "text.vocab_size": 60,
        "text.strict": False,
        "optim.lr": 0.1,
        "train.metric": "loss",
    }
    run = tmp_path / "runs" / "live"
    session = clearformer.start_run(pairs=pairs, valid=pairs, out=run, steps=6, settings=settings, device="cpu")
    steps = iter(session)
    patterns = []
    with TestClient(create_app(Store(runs=tmp_path / "runs")), base_url="http://127.0.0.1:8137") as client:
        for _ in range(2):
            next(steps)
            session.validate()
            session.save()
            body = {"model": "runs/live", "text": "the cat", "target": "le chat"}
            answer = client.post("/api/activations", json={**body, "names": ["encoder.blocks.0.attn.pattern"]})
            assert answer.status_code == 200, answer.text
            patterns.append(answer.content)
            [row] = client.get("/api/runs").json()["runs"]
            assert (row["name"], row["is_live"]) == ("live", True)
    session.close()
    assert patterns[0] != patterns[1]
