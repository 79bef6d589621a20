"""Several LoRA adapters on one base, each served as a model of its own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import clearformer
from clearformer import fit
from clearformer.errors import CheckpointError, ConfigError
from clearformer.serve.app import create_app
from clearformer.serve.start import parse_adapters
from clearformer.serve.store import Store
from clearformer.serve.work import Generate

from .conditions import eventually

LINES = "one two buckle my shoe\nthree four knock at the door\n", "four shoes at the door\nbuckle three hemmed wool\n"
SIZES = ["model.n_layers=1", "model.n_heads=2", "model.d_model=28", "model.d_ff=46", "model.max_length=61"]
SIZES += ["train.tokens=610", "train.steps=12", "train.validate_every=12", "schedule.warmup=5", "optim.lr=0.02"]
SHORT = ["train.steps=6", "train.validate_every=6", "optim.lr=0.05"]
TEXT = "buckle my"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and two adapters."""
    folder = tmp_path_factory.mktemp("adapters")
    for i, lines in enumerate(LINES):
        (folder / f"{i}.txt").write_text(lines * 61)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        clearformer.train(text=folder / "0.txt", out=folder / "base", settings=SIZES, device="cpu")
        for name, rank in (("lora-2", 2), ("lora-5", 5)):
            settings = [*SHORT, f"tuning.lora.rank={rank}"]
            text, out = folder / "1.txt", folder / name
            clearformer.finetune(folder / "base", text=text, method="lora", out=out, settings=settings, device="cpu")
    return folder


@pytest.fixture(scope="module")
def adapted(folder: Path) -> Iterator[TestClient]:
    store = Store([folder / "base"], adapters={"two": folder / "lora-2", "five": folder / "lora-5"})
    with TestClient(create_app(store), base_url="http://127.0.0.1:8137") as client:
        yield client
    store.close()


def test_every_adapter_answers_as_its_run_alone(adapted: TestClient, folder: Path) -> None:
    assert [row["id"] for row in adapted.get("/v1/models").json()["data"]] == ["base", "two", "five"]
    body: dict[str, Any] = {"prompt": TEXT, "max_tokens": 12, "temperature": 0}
    scores = set()
    for name, run in (("base", "base"), ("two", "lora-2"), ("five", "lora-5")):
        answer = adapted.post("/v1/completions", json={**body, "model": name}).json()
        [expected] = clearformer.load(folder / run).generate(TEXT, temperature=0, max_new=12)
        assert (answer["model"], answer["choices"][0]["text"]) == (name, expected.text)
        [score] = adapted.post("/v1/score", json={"model": name, "text": [TEXT]}).json()["scores"]
        assert score["logprob"] == pytest.approx(clearformer.score(folder / run, TEXT)["logprob"], rel=1e-4)
        scores.add(round(score["logprob"], 2))
    assert len(scores) == 3
    store = adapted.app.state.store
    assert list(store.opened) == ["base"]  # one engine and one copy of the base


def test_worker_processes_decode_rows_of_different_adapters(folder: Path) -> None:
    runs = {None: "base", "two": "lora-2", "five": "lora-5"}
    store = Store([folder / "base"], adapters={"two": folder / "lora-2", "five": folder / "lora-5"}, workers=1)
    engine = store.open().engine
    crew = engine.served.crew
    assert crew is not None
    assert eventually(lambda: crew.is_ready), crew.problem
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0, "max_new": 12},
        {"temperature": 0.0, "beam": 3, "max_new": 9},
        {"temperature": 1.1, "max_new": 10},
    ]
    works = [
        Generate([prompt], 1, seed=i, settings=one, adapter=adapter)
        for i, prompt in enumerate((TEXT, "three four", "at"))
        for one in settings
        for adapter in runs
    ]
    os.kill(engine.workers[0], signal.SIGSTOP)  # so that all are there together
    tickets = [engine.submit(work) for work in works]  # type: ignore[arg-type]
    assert eventually(lambda: engine.n_elsewhere == len(works))
    os.kill(engine.workers[0], signal.SIGCONT)
    alone = {adapter: clearformer.load(folder / run) for adapter, run in runs.items()}
    answers: dict[Any, list[str]] = {adapter: [] for adapter in runs}
    for work, ticket in zip(works, tickets):
        [[answer]] = ticket.result(60)
        [[expected]] = alone[work.adapter].generate(work.prompts, 1, (), work.seed, **work.settings)
        assert (answer.text, answer.tokens) == (expected.text, expected.tokens)
        answers[work.adapter].append(answer.text)
    assert len({tuple(texts) for texts in answers.values()}) == 3
    assert engine.scheduler.n_texts == 0
    store.close()


def test_mistakes(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="is not the run of an adapter"):
        Store([folder / "base"], adapters={"a": folder / "base"})
    with pytest.raises(CheckpointError, match="is not among the models") as raised:
        Store(["en-fr-small"], adapters={"a": folder / "lora-2"})
    assert f"--model {folder / 'base'}" in str(raised.value)
    with pytest.raises(ConfigError, match="already a model of this name"):
        Store([folder / "base"], adapters={"base": folder / "lora-2"})
    assert parse_adapters(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    for bad in ("a", "=b", "a=", "a b=c"):
        with pytest.raises(ConfigError, match="is not NAME=RUN"):
            parse_adapters([bad])
    with pytest.raises(ConfigError, match="given twice"):
        parse_adapters(["a=b", "a=c"])
