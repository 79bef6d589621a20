"""Models make room for others: the one that was used least recently, and only if it is idle."""

import errno
import io
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
import small_models
from fastapi.testclient import TestClient

from clearformer.loading.open import open_model
from clearformer.serve import asking
from clearformer.serve.app import create_app
from clearformer.serve.logs import Logs
from clearformer.serve.store import MOST_OPEN, Store
from clearformer.serve.work import Busy

HERE = "http://127.0.0.1:8137"
N_RUNS = MOST_OPEN + 1


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs 0 to 4, and models 0 to 3."""
    folder = tmp_path_factory.mktemp("store")
    for i in range(N_RUNS):
        small_models.write_gpt(folder / "runs" / str(i), seed=i)
    for i in range(MOST_OPEN):
        small_models.write_gpt(folder / "models" / str(i), seed=i)
    return folder


@pytest.fixture
def store(written: Path) -> Iterator[Store]:
    store = Store([written / "models" / "0"], written / "runs")
    store.open()
    yield store
    store.close()


def ask(store: Store, model: str) -> Any:
    with TestClient(create_app(store), base_url=HERE, raise_server_exceptions=False) as client:
        return client.post("/v1/completions", json={"model": model, "prompt": "The dog", "max_tokens": 3})


def test_a_run_beside_as_many_given_models_as_there_are_places(written: Path) -> None:
    store = Store([written / "models" / str(i) for i in range(MOST_OPEN)], written / "runs")
    for name in store.given:
        store.open(name)
    for run in ("runs/0", "runs/1"):
        assert ask(store, run).status_code == 200
        assert [*store.opened] == [*store.given, run]
    store.close()


def test_the_least_recently_used_leaves(store: Store) -> None:
    for run in ("runs/0", "runs/1", "runs/2", "runs/0"):
        store.open(run)
    engine = store.opened["runs/1"].engine
    store.open("runs/3")
    assert {*store.opened} == {"0", "runs/0", "runs/2", "runs/3"}
    engine.thread.join(60)
    assert not engine.thread.is_alive()


def test_all_models_share_one_budget_of_memory(store: Store) -> None:
    first, second = store.open().engine, store.open("runs/0").engine
    assert first.budget is second.budget
    assert first.budget.is_shared
    assert first.room.bytes == first.budget.bytes


def test_a_model_at_work_stays(store: Store) -> None:
    """And if all are at work, the request is refused."""
    with ExitStack() as stack:
        for run in ("runs/0", "runs/1"):
            stack.enter_context(store.open(run).use())
        store.open("runs/2")
        store.open("runs/3")
        assert {*store.opened} == {"0", "runs/0", "runs/1", "runs/3"}
        stack.enter_context(store.open("runs/3").use())
        with pytest.raises(Busy, match="4 models are in memory, and none of them is idle"):
            store.open("runs/4")
        response = ask(store, "runs/4")
        assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_full")
        assert response.headers["retry-after"] == "5"
    assert ask(store, "runs/4").status_code == 200


def ruin_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"half a file")


def ruin_recipe(folder: Path) -> None:
    (folder / "recipe.toml").unlink()
    (folder / "recipe.toml").mkdir()


def ruin_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b"\xff")


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").open("rb")


def remove_all(folder: Path) -> None:
    shutil.rmtree(folder)
    (folder / "model.safetensors").open("rb")


def fail_disk(folder: Path) -> None:
    raise OSError(errno.EIO, "Input/output error", str(folder / "model.safetensors"))


def hide_weights(folder: Path) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("ruin", "status", "reason"),
    [
        (ruin_weights, 404, "model.safetensors is truncated or not a safetensors file"),
        (ruin_recipe, 404, "recipe.toml cannot be read: Is a directory"),
        (ruin_tokenizer, 404, "tokenizer.json cannot be read as a tokenizer: it is not UTF-8"),
        (remove_weights, 404, "a file has been removed"),
        (remove_all, 404, "the folder has been removed"),
        (fail_disk, 503, "the files cannot be read: Input/output error"),
        (hide_weights, 503, "the files cannot be read: Permission denied"),
    ],
)
def test_a_run_that_cannot_be_read_is_a_sentence(tmp_path: Path, ruin: Any, status: int, reason: str) -> None:
    """Whatever happens to its files after the list of runs was read. It does not say where they are on the server."""
    run = small_models.write_gpt(tmp_path / "runs" / "mine")

    def ruin_and_read(path: Path, device: str) -> Any:
        if path == run:
            ruin(run)
        return open_model(path, device)

    store, log = Store(runs=tmp_path / "runs", read=ruin_and_read), io.StringIO()
    body = {"model": "runs/mine", "prompt": "The dog", "max_tokens": 3}
    with TestClient(create_app(store, logs=Logs(log)), base_url=HERE, raise_server_exceptions=False) as client:
        response = client.post("/v1/completions", json=body)
        assert client.post("/v1/translate", json={"text": "A dog."}).status_code == 200
    store.close()
    error = response.json()["error"]
    assert (response.status_code, error["message"][: 30 + len(reason)]) == (
        status,
        f"`runs/mine` cannot be opened: {reason}",
    )
    assert error["hint"]
    assert str(tmp_path) not in response.text
    assert '"bug"' not in log.getvalue()


def test_a_model_that_leaves_after_it_was_chosen_is_opened_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, left = asking.submit, []

    async def leave_first(request: Any, chosen: Any, *arguments: Any) -> Any:
        if not left:
            left.append(store.opened.pop("runs/0").close_if_idle())
        return await submit(request, chosen, *arguments)

    monkeypatch.setattr(asking, "submit", leave_first)
    assert ask(store, "runs/0").status_code == 200
    assert left == [True]
    assert "runs/0" in store.opened


def test_many_models_at_once_keep_to_the_places(store: Store) -> None:

    def use(i: int) -> int:
        body = {"model": f"runs/{i % N_RUNS}", "prompt": "The dog", "max_tokens": 3}
        return int(client.post("/v1/completions", json=body).status_code)

    with (
        TestClient(create_app(store), base_url=HERE) as client,  # one: several would build their routes
        ThreadPoolExecutor(3) as pool,  # at the same time, and FastAPI changes the filters of warnings meanwhile
    ):
        statuses = [*pool.map(use, range(12))]
    assert {*statuses} <= {200, 429}
    assert statuses.count(200) >= N_RUNS
    assert len(store.opened) <= MOST_OPEN
