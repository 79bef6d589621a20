"""Many clients at once: every answer is the one that the model gives alone, whatever else is in the batch."""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi")
import httpx2 as httpx

from clearformer.bundled import corpus
from clearformer.serve.app import create_app
from clearformer.serve.store import Store

N_CLIENTS = 64
N_EACH = 4  # requests of a client, one after the other


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "two workers"])
def served(request: pytest.FixtureRequest, serving: Any) -> Iterator[tuple[Store, str]]:
    store = Store(workers=request.param)
    crew = store.open().engine.served.crew
    assert (crew is None) == (request.param == 0)
    while crew is not None and not all(member.is_ready for member in crew.members):
        assert crew.problem is None
        time.sleep(0.01)
    with serving(create_app(store)) as url:
        yield store, url
    store.close()


def mixed_requests(n: int) -> list[dict[str, Any]]:
    """Texts of one to four sentences, with one to five hypotheses; greedy ones are streamed."""
    draw = random.Random(3)
    sentences = [f"{pair.english}." for depth in (0, 1, 2) for pair in corpus.generate(200, seed=depth, depth=depth)]
    bodies: list[dict[str, Any]] = []
    for _ in range(n):
        body = {"text": " ".join(draw.choices(sentences, k=draw.randint(1, 4))), "beam": draw.randint(1, 5)}
        bodies.append({**body, "stream": True} if body["beam"] == 1 else {**body, "n": draw.randint(1, 2)})
    return bodies


def ask(client: httpx.Client, body: dict[str, Any]) -> list[str]:
    response = client.post("/v1/translate", json=body)
    assert response.status_code == 200, response.text
    if "stream" not in body:
        return [row["translation"] for row in response.json()["translations"]]
    *_, end, done = response.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(end.split("data: ")[1])["translation"]]


@pytest.mark.slow
def test_every_answer_of_64_clients_is_that_of_offline_decoding(served: tuple[Store, str]) -> None:
    store, url = served
    bodies = mixed_requests(N_CLIENTS * N_EACH)
    together = []

    def work(i: int) -> list[list[str]]:
        with httpx.Client(base_url=url, timeout=600) as client:
            answers = []
            for body in bodies[i * N_EACH : (i + 1) * N_EACH]:
                answers.append(ask(client, body))
                together.append(store.open().engine.n_running)
            return answers

    with ThreadPoolExecutor(N_CLIENTS) as pool:
        answers = [answer for some in pool.map(work, range(N_CLIENTS)) for answer in some]
    handle = store.open().handle
    for body, answer in zip(bodies, answers, strict=True):
        offline = handle.candidates([body["text"]], body.get("n", 1), beam=body["beam"])[0]  # type: ignore[attr-defined]
        assert answer == [one.text for one in offline], body
    assert max(together) > 4  # they shared the batches
    assert store.open().engine.n_running == 0
