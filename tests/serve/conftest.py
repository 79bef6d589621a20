"""A server with the bundled translator, a small model of every kind and a folder of runs; clients that know its key.

`client` calls the application directly; `url` is the address of a server that listens, for other clients.
"""

import faulthandler
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from clearformer.serve.app import create_app
from clearformer.serve.logs import Logs, SilentLogs
from clearformer.serve.server import Server, listen
from clearformer.serve.store import Store
from clearformer.studio.pages import mount_pages

sys.path.insert(0, str(Path(__file__).parent))
import small_models

TOKEN = "secret-token"
KINDS = ("gpt", "bert", "classifier", "image_classifier", "recogniser")
HERE = "http://127.0.0.1:8137"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=500, help="requests that schemathesis makes up (marker schema)")
    parser.addoption("--counts", type=Path, help="a file for the number of answers by path and status (marker schema)")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def write_run(runs: Path) -> Callable[..., Path]:
    """Write a run folder with a recipe and as many records as are given, without weights."""

    def write(name: str, records: list[dict[str, Any]], recipe: str | None = None) -> Path:
        folder = runs / name
        folder.mkdir(parents=True, exist_ok=True)
        text = recipe or '[data]\n[data.train]\npath = "pairs.tsv"\n[model]\npreset = "transformer-tiny"\n'
        (folder / "recipe.toml").write_text(text, encoding="utf-8")
        (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return folder

    return write


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the small models, by kind."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: getattr(small_models, f"write_{kind}")(folder / kind) for kind in KINDS}


@pytest.fixture(scope="session")
def store(runs: Path, folders: dict[str, Path]) -> Store:
    return Store(["en-fr-small", *folders.values()], runs)


@pytest.fixture(scope="session")
def client(store: Store) -> Iterator[TestClient]:
    app = mount_pages(create_app(store, TOKEN))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url=HERE, headers=headers, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def stranger(client: TestClient) -> Iterator[TestClient]:
    """A client of the same server without the token."""
    with TestClient(client.app, base_url=HERE) as stranger:
        yield stranger


@contextmanager
def listening(app: Any, logs: Logs | None = None, **settings: Any) -> Iterator[str]:
    """Serve an application in a thread; yields its address."""
    with listen("127.0.0.1", 0) as listener:
        server = Server(app, logs or SilentLogs(), **settings)
        thread = threading.Thread(target=server.run, daemon=True, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)
        if thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def url(store: Store) -> Iterator[str]:
    with listening(create_app(store, TOKEN, hosts=None)) as url:
        yield url


@pytest.fixture(scope="session")
def serving() -> Any:
    return listening
