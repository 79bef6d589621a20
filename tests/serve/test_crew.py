"""Worker processes answer as the handle does, and nothing is lost when they end, or when the model changes."""

import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("fastapi")
import small_models
from fastapi.testclient import TestClient

from clearformer.generation.continuous import Footprint
from clearformer.loading.open import open_model
from clearformer.serve.app import create_app
from clearformer.serve.budget import Budget
from clearformer.serve.crew import SMALL, workers_for
from clearformer.serve.engine import Engine
from clearformer.serve.opener import Opener
from clearformer.serve.store import Store
from clearformer.serve.work import Answer, Cancelled, Closing, Ended, Expired, Generate, NoMemory, Plan, Token, Work

from .conditions import eventually

PROMPTS = ["The dog", "A man likes", "The", "A cat hears the book", "Sees a tree it is high", "river"] * 3
SEARCHES: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "beam": 3},
    {"temperature": 1.1, "repetition_penalty": 1.2},
]


@contextmanager
def stopped(processes: list[int]) -> Iterator[None]:
    """Stop processes for a while."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models.write_gpt(tmp_path_factory.mktemp("crew") / "gpt")


def engine_for(folder: Path, n_workers: int = 2) -> Engine:
    opener = Opener(folder, "cpu", open_model)
    return Engine(opener.open()[0], opener=opener, n_workers=n_workers)


def wait_for_crew(engine: Engine) -> None:
    crew = engine.served.crew
    assert crew is not None
    assert eventually(lambda: all(member.is_ready for member in crew.members)), crew.problem


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    engine = engine_for(folder)
    wait_for_crew(engine)
    yield engine
    processes = engine.workers
    engine.close()
    assert not engine.thread.is_alive()
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def works() -> list[Work]:
    return [
        Generate([prompt], seed=i, settings=SEARCHES[i % 3] | {"max_new": 7 + i}) for i, prompt in enumerate(PROMPTS)
    ]


def offline(engine: Engine, work: Any) -> list[list[Any]]:
    return engine.handle.generate(work.prompts, work.n, work.stop, work.seed, **work.settings)


def tokens(results: list[list[Any]]) -> list[list[list[int]]]:
    return [[one.tokens for one in candidates] for candidates in results]


def test_how_many_processes_a_model_gets() -> None:
    assert [workers_for(1000, n) for n in (1, 2, 4, 64)] == [0, 2, 4, 8]
    assert workers_for(int(2 * SMALL), 4) == 0


def test_answers_are_those_of_the_handle(engine: Engine) -> None:
    local = engine.totals.steps
    tickets = [engine.submit(work) for work in works()]
    assert eventually(lambda: engine.n_elsewhere > 0 or all(ticket.is_done for ticket in tickets))
    for work, ticket in zip(works(), tickets):
        assert tokens(ticket.result(60)) == tokens(offline(engine, work))
        assert ticket.started is not None
        assert ticket.first_token is not None
    greedy = engine.submit(work := Generate(["The dog"], n=2, settings={"temperature": 1.0, "max_new": 5}, seed=3))
    [answer] = greedy.result(60)
    assert greedy.n_generated == sum(len(one.tokens) + (one.ended == "eos") for one in answer)
    assert tokens([answer]) == tokens(offline(engine, work))
    assert engine.totals.steps - local < 200  # nothing was decoded here: turns are only for news
    assert engine.n_elsewhere == engine.n_running == engine.n_waiting == 0


def test_streams_have_every_token(engine: Engine) -> None:
    work = Generate(PROMPTS[:2], settings={"temperature": 0.0, "max_new": 9}, stream=True)
    events = list(engine.submit(work))
    for index, [expected] in enumerate(offline(engine, work)):
        mine = [event for event in events if event.index == index]
        assert [event.id for event in mine if isinstance(event, Token)][: len(expected.tokens)] == expected.tokens
        assert "".join(event.text for event in mine if isinstance(event, Token | Ended)) == expected.text
        assert [type(event) for event in mine[-2:]] == [Ended, Answer]


def test_streams_with_alternatives_are_decoded_there(engine: Engine) -> None:
    """And they are the most probable tokens, as the engine finds them itself."""
    work = Generate(PROMPTS[:3], settings={"temperature": 0.0, "max_new": 5}, stream=True, top=3)
    alone = Engine(engine.handle)
    events, expected = list(engine.submit(work)), list(alone.submit(work))
    alone.close()
    for index in range(3):
        mine, others = (
            [one for one in some if isinstance(one, Token) and one.index == index] for some in (events, expected)
        )
        assert [event.id for event in mine] == [event.id for event in others]
        for event, other in zip(mine, others):
            assert [id for id, _ in event.top] == [id for id, _ in other.top]
            assert [value for _, value in event.top] == pytest.approx([value for _, value in other.top], rel=1e-4)
    with stopped(engine.workers):
        ticket = engine.submit(work)
        assert eventually(lambda: engine.n_elsewhere == 3)
        assert ticket.first_token is None
    ticket.result(60)


def test_stop_strings_are_found_here(engine: Engine) -> None:
    work = Generate(PROMPTS[:4], stop=("a", "e"), settings={"temperature": 0.0, "max_new": 30})
    assert tokens(engine.submit(work).result(60)) == tokens(offline(engine, work))


def test_texts_of_a_process_that_is_killed_are_decoded_by_others(engine: Engine) -> None:
    crew = engine.served.crew
    assert crew is not None
    work = Generate(["The dog"], settings={"temperature": 0.0, "max_new": 80, "min_length": 80}, stream=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tickets = [engine.submit(work) for _ in range(12)]
        first = next(iter(tickets[0]))
        assert isinstance(first, Token)
        os.kill(crew.members[0].process.pid, signal.SIGKILL)
        [expected] = offline(engine, work)
        for ticket in tickets[1:]:
            seen = [event.id for event in ticket if isinstance(event, Token)]
            assert seen[: len(expected[0].tokens)] == expected[0].tokens  # no token twice
        for ticket in tickets:
            assert tokens(ticket.result(60)) == tokens([expected])
        wait_for_crew(engine)
    assert ["ended with -9" in str(warning.message) for warning in said] == [True]
    assert len(engine.workers) == 2


def test_texts_of_processes_use_the_memory_that_other_engines_leave(folder: Path) -> None:
    opener = Opener(folder, "cpu", open_model)
    handle, _ = opener.open()
    work = Generate(["The dog"], settings={"temperature": 0.0, "max_new": 20})
    [plan] = work.plan(handle)
    n_bytes = Footprint.of(handle.model).n_bytes(plan.sequences)
    budget, other = Budget(20 * n_bytes), Mock()
    budget.join(other)
    engine = Engine(handle, opener=opener, n_workers=1, budget=budget)
    wait_for_crew(engine)
    budget.use(other, "here", int(17.5 * n_bytes))
    with stopped(engine.workers):
        tickets = [engine.submit(work) for _ in range(5)]
        assert eventually(lambda: budget.needs.get(engine) == n_bytes)
        assert (engine.n_elsewhere, engine.n_waiting, budget.used_by(engine)) == (2, 3, 2 * n_bytes)
        budget.use(other, "here", 0)
        budget.tell(other)
        assert eventually(lambda: engine.n_elsewhere == 5)
    for ticket in tickets:
        assert tokens(ticket.result(60)) == tokens(offline(engine, work))
    assert eventually(lambda: budget.used_by(engine) == 0)
    assert not budget.needs
    engine.close()


def test_a_text_that_ends_two_processes_fails(engine: Engine) -> None:
    crew = engine.served.crew
    assert crew is not None
    work = Generate(["The dog"], settings={"temperature": 0.0, "max_new": 90, "min_length": 90, "beam": 5})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for process in engine.workers:
            os.kill(process, signal.SIGSTOP)  # so that nothing is finished
        ticket = engine.submit(work)
        for _ in range(2):
            assert eventually(lambda: any(member.texts for member in crew.members))
            [busy] = [member for member in crew.members if member.texts]
            os.kill(busy.process.pid, signal.SIGKILL)
            assert eventually(partial(getattr, busy, "is_lost"))
        with pytest.raises(NoMemory, match="ended twice"):
            ticket.result(60)
        wait_for_crew(engine)
    assert tokens(engine.submit(works()[0]).result(60)) == tokens(offline(engine, works()[0]))


def test_what_nobody_waits_for_is_dropped(engine: Engine) -> None:
    long = Generate(["The dog"], settings={"temperature": 0.0, "max_new": 90, "min_length": 90, "beam": 5})
    with stopped(engine.workers):
        cancelled, late = engine.submit(long), engine.submit(long, timeout=0.01)
        cancelled.cancel()
        with pytest.raises(Cancelled):
            cancelled.result(10)
        with pytest.raises(Expired):
            late.result(10)
        assert eventually(lambda: engine.n_running + engine.n_waiting == 0, 10)


def test_a_process_that_does_not_answer_is_seen(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.crew.STUCK_SECONDS", 0.2)
    assert not engine.is_stuck
    with stopped(engine.workers):
        ticket = engine.submit(works()[0])
        assert eventually(lambda: engine.is_stuck, 10)
    assert tokens(ticket.result(60)) == tokens(offline(engine, works()[0]))
    assert not engine.is_stuck


@dataclass
class Invalid:
    """A text with a token that the model does not have."""

    inner: Any
    stop: Sequence[str] = ()
    stream: bool = False
    top: int = 0
    adapter: str | None = None

    def plan(self, handle: Any) -> list[Plan]:
        plans = self.inner.plan(handle)
        for plan in plans:
            assert plan.sequences is not None
            object.__setattr__(plan.sequences, "source", [10**6])
        return plans


def test_an_error_of_one_text_is_its_own(engine: Engine) -> None:
    tickets = [engine.submit(work) for work in works()[:6]]
    bad = engine.submit(Invalid(works()[0]))
    tickets += [engine.submit(work) for work in works()[6:]]
    with pytest.raises(IndexError):
        bad.result(60)
    for work, ticket in zip(works(), tickets):
        assert tokens(ticket.result(60)) == tokens(offline(engine, work))


def test_a_model_that_cannot_be_opened_again_is_decoded_here(folder: Path, tmp_path: Path) -> None:
    opener = Opener(folder, "cpu", open_model)
    handle, _ = opener.open()
    gone = Engine(handle, opener=Opener(tmp_path / "gone", "cpu", open_model), n_workers=1)
    assert gone.served.crew is not None
    assert eventually(lambda: gone.served.crew is not None and gone.served.crew.problem is not None)
    assert tokens(gone.submit(works()[1]).result(60)) == tokens(offline(gone, works()[1]))
    assert not gone.is_stuck
    gone.close()


def test_the_end_fails_what_is_left(folder: Path) -> None:
    engine = engine_for(folder, 1)
    wait_for_crew(engine)
    long = Generate(["The dog"], settings={"temperature": 0.0, "max_new": 90, "min_length": 90, "beam": 5})
    ticket = engine.submit(long)
    processes = engine.workers
    engine.close()
    with pytest.raises(Closing):
        ticket.result(10)
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def test_weights_that_change_under_load_lose_no_request(tmp_path: Path) -> None:
    folder = small_models.write_gpt(tmp_path / "gpt")
    store = Store([folder], workers=1)
    with TestClient(create_app(store), base_url="http://127.0.0.1:8137", raise_server_exceptions=False) as client:
        opened = store.open()
        wait_for_crew(opened.engine)
        body = {"prompt": "The dog", "max_tokens": 30, "temperature": 0}
        before = client.post("/v1/completions", json=body).json()["choices"]
        ticket = opened.engine.submit(Generate(["The dog"], settings={"temperature": 0.0, "max_new": 30}))
        [process] = opened.engine.workers
        other = small_models.write_gpt(tmp_path / "other", seed=1)
        os.replace(other / "model.safetensors", folder / "model.safetensors")
        after = client.post("/v1/completions", json=body).json()["choices"]
        assert after[0]["text"] != before[0]["text"]
        assert ticket.result(60)[0][0].text == before[0]["text"]
        wait_for_crew(opened.engine)
        assert client.post("/v1/completions", json=body).json()["choices"] == after
        assert eventually(lambda: not Path(f"/proc/{process}").exists())
        text = client.get("/metrics").text
        assert 'clearformer_num_workers{model_name="gpt"} 1' in text
    store.close()
