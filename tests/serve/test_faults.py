"""Clients that leave, send half a request or nothing; servers that are stopped or killed."""

import asyncio
import io
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("fastapi")
import httpx2 as httpx
import torch
from torch import Tensor

from clearformer.serve.app import create_app
from clearformer.serve.limits import Limits
from clearformer.serve.logs import Logs, SilentLogs
from clearformer.serve.store import Store

from .conditions import eventually

TEXT = "Where is the station?"
BODY = {"model": "gpt", "prompt": "The dog", "max_tokens": 90, "temperature": 1}


def send(url: str, path: str, body: dict[str, Any], more: str = "") -> socket.socket:
    """Send a request on a new connection, and read nothing."""
    host, port = url.removeprefix("http://").split(":")
    content = json.dumps(body)
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(content)}\r\n{more}\r\n"
    connection.sendall((head + content).encode())
    return connection


def test_a_client_that_leaves_frees_its_place(store: Store, serving: Any) -> None:
    opened = store.open("gpt")
    before = opened.engine.totals.generated_tokens
    app = create_app(store)
    with serving(app) as url:
        with opened.use():  # nothing is decoded meanwhile
            for more in ({}, {"stream": True}, {"logprobs": 2}):
                connection = send(url, "/v1/completions", {**BODY, **more})
                assert eventually(lambda: app.state.traffic.active == 1 and opened.engine.n_waiting > 0)
                connection.close()
                assert eventually(lambda: app.state.traffic.active == 0)
        assert eventually(lambda: opened.engine.n_waiting + opened.engine.n_running == 0)
        assert opened.engine.totals.generated_tokens == before
        assert httpx.post(f"{url}/v1/completions", json=BODY).status_code == 200


def disconnect(url: str, n: int, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(n):
        connection = send(url, "/v1/completions", {**BODY, "stream": draw.random() < 0.5, "n": draw.randint(1, 3)})
        if draw.random() < 0.5:
            time.sleep(draw.uniform(0, 0.03))
        else:
            connection.recv(draw.randint(1, 600))
        connection.close()


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("n", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_disconnects_at_random_moments_leak_nothing(
    folders: dict[str, Path], serving: Any, n: int, n_workers: int
) -> None:
    store = Store([folders["gpt"]], workers=n_workers)
    opened, app = store.open("gpt"), create_app(store)
    assert eventually(lambda: len(opened.engine.workers) == n_workers)
    with serving(app) as url:
        if n_workers:
            crew = opened.engine.served.crew
            assert crew is not None
            assert eventually(lambda: all(member.is_ready for member in crew.members), 60)
        disconnect(url, 5, 0)
        assert eventually(lambda: app.state.traffic.active == 0)
        n_threads, n_open = threading.active_count(), n_open_files()
        threads = [threading.Thread(target=disconnect, args=[url, n // 5, seed]) for seed in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert eventually(lambda: app.state.traffic.active == 0)
        assert eventually(lambda: opened.engine.n_waiting + opened.engine.n_running == 0)
        assert threading.active_count() <= n_threads
        assert eventually(lambda: n_open_files() <= n_open)
        group = next(iter(opened.engine.scheduler.groups.values()), None)
        assert group is None or not list(group)  # no row is kept for a client that left
        assert httpx.post(f"{url}/v1/completions", json=BODY).status_code == 200
    store.close()


def n_open_files() -> int:
    """The files and connections of this process."""
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


@pytest.mark.parametrize("is_memory", [False, True])
def test_a_request_whose_decoding_raises(folders: dict[str, Path], serving: Any, is_memory: bool) -> None:
    """It is answered with 500, or 503 if memory was lacking, and those that share its batch as if it were not there."""
    store = Store([folders["gpt"]])
    opened = store.open()
    network: Any = opened.handle.model
    start, long = network.start, "The dog sees a tree, it is high. " * 2
    body = {**BODY, "temperature": 0, "max_tokens": 12}

    def fail_for_long_texts(source: Tensor, mask: Any) -> Any:
        if source.size(1) > 16:
            return torch.empty(2**60) if is_memory else [][source.size(1)]
        return start(source, mask)

    with serving(create_app(store)) as url, ThreadPoolExecutor(8) as pool:
        expected = httpx.post(f"{url}/v1/completions", json=body).json()["choices"]
        network.start = fail_for_long_texts
        with opened.use():  # so that all join together
            prompts = ["The dog", long] * 4
            post = partial(httpx.post, f"{url}/v1/completions", timeout=30)
            answers = [pool.submit(post, json={**body, "prompt": prompt}) for prompt in prompts]
            assert eventually(lambda: opened.engine.n_waiting == len(prompts))
        for prompt, answer in zip(prompts, answers):
            response = answer.result()
            if prompt == long:
                code = response.json()["error"]["code"]
                assert (response.status_code, code) == ((503, "memory") if is_memory else (500, "bug"))
            else:
                assert (response.status_code, response.json()["choices"]) == (200, expected)
        assert httpx.get(f"{url}/health").status_code == 200
    store.close()


def read_all(connection: socket.socket) -> bytes:
    content = b""
    while part := connection.recv(65536):
        content += part
    return content


@pytest.fixture(scope="module")
def impatient(store: Store, serving: Any) -> Iterator[str]:
    """The address of a server that waits for a third of a second."""
    with serving(create_app(store, limits=Limits(body_seconds=0.3)), head_seconds=0.3) as url:
        yield url


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/tr", b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_headers_that_do_not_arrive(impatient: str, sent: bytes) -> None:
    with connect(impatient) as connection:
        connection.sendall(sent)
        begin = time.monotonic()
        assert read_all(connection) == b""
        assert 0.1 < time.monotonic() - begin < 4


def test_headers_that_arrive_byte_by_byte(impatient: str) -> None:
    """Slowloris: every byte comes in time, and the headers never end."""
    with connect(impatient) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        begin, n = time.monotonic(), 0
        with suppress(OSError):
            for n in range(100):
                connection.sendall(f"X-{n}: a\r\n".encode())
                time.sleep(0.05)
        assert 1 < n < 99
        assert time.monotonic() - begin < 4


def test_a_connection_is_kept_for_the_next_request(impatient: str) -> None:
    request = f"GET /health HTTP/1.1\r\nHost: {impatient.removeprefix('http://')}\r\n\r\n".encode()
    with connect(impatient) as connection:
        for _ in range(3):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.4)  # longer than headers may take
        connection.sendall(request[:20])
        assert read_all(connection) == b""


@pytest.mark.parametrize("head", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_half_a_body(impatient: str, head: str) -> None:
    host = impatient.removeprefix("http://")
    with connect(impatient) as connection:
        connection.sendall(f'POST /v1/translate HTTP/1.1\r\nHost: {host}\r\n{head}\r\n\r\n{{"text": "Wh'.encode())
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408" if "Length" in head else b"HTTP/1.1 4")
    with connect(impatient) as connection:  # and one that goes away in the middle
        connection.sendall(f'POST /v1/translate HTTP/1.1\r\nHost: {host}\r\n{head}\r\n\r\n{{"text": "Wh'.encode())
    assert httpx.post(f"{impatient}/v1/translate", json={"text": TEXT}).status_code == 200


def test_the_end_answers_everyone(folders: dict[str, Path]) -> None:
    """Requests that are still waiting when the time is over are answered with 503, new ones at once."""
    from clearformer.serve.server import Server, listen

    store = Store([folders["gpt"]])
    opened, app = store.open(), create_app(store)
    with listen("127.0.0.1", 0) as listener:
        server = Server(app, SilentLogs(), drain_seconds=1.0)
        thread = threading.Thread(target=server.run, daemon=True, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        answers: list[Any] = []
        with opened.use():
            body = {**BODY, "stream": False}
            waiting = threading.Thread(
                target=lambda: answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=20))
            )
            waiting.start()
            streamed = send(url, "/v1/completions", {**BODY, "stream": True})
            assert eventually(lambda: opened.engine.n_waiting == 2)
            server.handle_exit(signal.SIGTERM, None)
            refused = httpx.post(f"{url}/v1/completions", json=BODY)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert httpx.get(f"{url}/ready").status_code == 503
            waiting.join(20)
            with streamed:
                stream = read_all(streamed)
        thread.join(20)
        assert not thread.is_alive()
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "draining")
    assert b'"code":"draining"' in stream
    assert stream.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_client_that_stops_reading_is_cut(store: Store, serving: Any) -> None:
    """What is sent does not pile up in memory, and the log has the reason."""
    from fastapi.responses import StreamingResponse

    app, stream, ended = create_app(store), io.StringIO(), threading.Event()

    async def flood() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)
        finally:
            ended.set()

    app.add_api_route("/flood", lambda: StreamingResponse(flood()))
    with serving(app, Logs(stream), read_seconds=0.3) as url, connect(url) as connection:
        connection.sendall(f"GET /flood HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\n\r\n".encode())
        assert ended.wait(60)
        assert eventually(lambda: app.state.traffic.active == 0)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row["message"] for row in rows if row["event"] == "unread"] == [
        "the client has read nothing for 0.3 s, and its connection is closed"
    ]


def test_a_client_that_reads_on_is_not_cut() -> None:
    from clearformer.serve.server import Protocol

    protocol: Any = Protocol.__new__(Protocol)
    protocol.loop, protocol.flow = Mock(), Mock()
    for _ in range(3):
        protocol.pause_writing()
        timer = protocol.read_timer
        protocol.pause_writing()
        assert protocol.read_timer is timer  # the time is not extended
        timer.cancel.reset_mock()
        protocol.resume_writing()
        timer.cancel.assert_called_once()
    assert protocol.loop.call_later.call_count == 3


def test_events_that_nobody_reads_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.setattr("clearformer.serve.ticket.MOST_EVENTS", 2)
    opened, stream = store.open("gpt"), io.StringIO()
    app = create_app(store, logs=Logs(stream))
    with TestClient(app, base_url="http://127.0.0.1:8137") as client:
        response = client.post("/v1/completions", json={**BODY, "n": 3, "stream": True})
    problem, done = response.text.strip().split("\n\n")[-2:]
    assert (json.loads(problem.removeprefix("data: "))["error"]["code"], done) == ("unread", "data: [DONE]")
    assert eventually(lambda: opened.engine.n_running == 0)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    messages = {row["event"]: row.get("message") for row in rows}
    assert messages == {"unread": "the stream is not read: 2 events waiting", "request": None}


def test_the_end_answers_a_call_that_runs(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.serve.server import Server, listen

    monkeypatch.setattr("clearformer.serve.engine.END_SECONDS", 0.1)
    begun, release = threading.Event(), threading.Event()
    monkeypatch.setattr("clearformer.handles.scorer.Scorer.score_each", lambda *_: begun.set() or release.wait(60))
    store = Store([folders["gpt"]])
    store.open()
    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as pool:
        server = Server(create_app(store), SilentLogs(), drain_seconds=0.1)
        thread = threading.Thread(target=server.run, daemon=True, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        answer = pool.submit(httpx.post, f"{url}/v1/score", json={"text": TEXT}, timeout=60)
        assert begun.wait(60)
        server.handle_exit(signal.SIGTERM, None)
        response = answer.result(60)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
        thread.join(60)
        assert not thread.is_alive()
        release.set()


class Process:
    """`clearformer serve` as a user starts it."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "clearformer", "serve", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        match = re.search(r"http://[\d.]+:\d+", self.line)
        assert match, self.process.communicate()
        self.url = match[0]

    def stop(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


def children(process: int) -> list[str]:
    """The processes that a process has started."""
    paths = Path(f"/proc/{process}/task").glob("*/children")
    return [child for path in paths for child in path.read_text().split()]


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process("--port", "0", *arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize("n_workers", [0, 2])
def test_sigterm_under_load_loses_no_accepted_request(process: Callable[..., Process], n_workers: int) -> None:
    """And what the command prints works when it is pasted."""
    server = process("--workers", str(n_workers))
    printed = subprocess.run(["bash", "-c", server.line], capture_output=True, check=True).stdout
    assert json.loads(printed)["translations"][0]["translation"] == "Où est la gare ?"
    outcomes: list[Any] = []

    def load() -> None:
        while True:
            try:
                response = httpx.post(f"{server.url}/v1/translate", json={"text": TEXT, "beam": 3}, timeout=30)
            except httpx.ConnectError:
                outcomes.append("no server")
                return
            except httpx.TransportError as error:
                outcomes.append(repr(error))
                return
            row = response.json()
            outcomes.append(row["translations"][0]["translation"] if "translations" in row else row["error"]["code"])
            if response.status_code != 200:
                return

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(outcomes) > 12, 60)
    code, log = server.stop(signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    assert set(outcomes) <= {"Où est la gare ?", "draining", "no server"}
    assert outcomes.count("draining") + outcomes.count("no server") == 6
    assert code == 0
    rows = [json.loads(line) for line in log.splitlines()]  # nothing but JSON
    assert [row["event"] for row in (rows[0], rows[-1])] == ["start", "stop"]
    assert rows[-1]["late"] == 0


@pytest.mark.slow
def test_kill_and_restart(process: Callable[..., Process]) -> None:
    server = process("--workers", "2")
    workers = children(server.process.pid)
    assert len(workers) == 2
    port = server.url.rsplit(":", 1)[1]
    open_connections = [send(server.url, "/v1/translate", {"text": TEXT}) for _ in range(4)]
    assert server.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    again = process("--port", port)
    assert again.url == server.url
    assert eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    assert httpx.post(f"{again.url}/v1/translate", json={"text": TEXT}).status_code == 200
    for connection in open_connections:
        connection.close()
    assert again.stop(signal.SIGINT)[0] == 0
