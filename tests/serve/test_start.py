"""What `clearformer serve` refuses to start with, and the pages that are part of it."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from clearformer.cli.serve import studio_pages
from clearformer.errors import ConfigError, MachineError
from clearformer.serve.app import create_app
from clearformer.serve.server import listen
from clearformer.serve.start import as_url, invite, is_loopback, read_keys, start
from clearformer.serve.store import Store

KEY = "0123456789abcdef"


def write_key(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_keys_are_the_lines_of_a_private_file(tmp_path: Path) -> None:
    assert read_keys(write_key(tmp_path / "key", f"\n{KEY}\n  {KEY}2 \n")) == [KEY, f"{KEY}2"]


@pytest.mark.parametrize(
    ("text", "mode", "message", "hint"),
    [
        (KEY, 0o644, "can be read by other users", "chmod 600"),
        (KEY, 0o620, "can be read by other users", "chmod 600"),
        ("\n\n", 0o600, "is empty", "openssl rand"),
        ("short", 0o600, "at least 16 characters", "openssl rand"),
        (f"{KEY} {KEY}", 0o600, "no spaces", "openssl rand"),
    ],
)
def test_a_key_file_that_is_no_secret(tmp_path: Path, text: str, mode: int, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        read_keys(write_key(tmp_path / "key", text, mode))
    assert hint in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_keys(tmp_path / "none")


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("crew.start", BlockingIOError(11, "too many"), "a worker process cannot be started: too many"),
        (
            "opener.handle_of",
            OSError(24, "too many"),
            "`en-fr-small` cannot be opened: the files cannot be read: too many",
        ),
        ("store.Engine", RuntimeError("private"), "because of an unexpected error: RuntimeError"),
    ],
)
def test_a_server_that_cannot_open_its_models_stops(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str, error: Exception, message: str
) -> None:
    def fail(*arguments: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr(f"clearformer.serve.{place}", fail)
    with pytest.raises(MachineError, match=message):
        start(port=0, workers=1, say=lambda line: pytest.fail("it is not ready"))
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, RuntimeError)


def test_credentials_of_systemd_are_readable_by_their_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_key(tmp_path / "key", KEY, 0o440)
    with pytest.raises(ConfigError, match="can be read by other users"):
        read_keys(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_keys(path) == [KEY]
    for mode in (0o444, 0o460):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="can be read by other users"):
            read_keys(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "other"))
    path.chmod(0o440)
    with pytest.raises(ConfigError, match="can be read by other users"):
        read_keys(path)


def test_other_machines_need_a_key() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.com"):
        assert not is_loopback(host)
        with pytest.raises(ConfigError, match="open to other machines and needs a key"):
            start(host=host)
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    assert [as_url(host) for host in ("0.0.0.0", "::", "::1", "a.b")] == ["127.0.0.1", "[::1]", "[::1]", "a.b"]


def test_a_port_in_use_and_an_address_of_another_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=f"port {port} of 127.0.0.1 cannot be used: Address already in use"):
            listen("127.0.0.1", port)
    with pytest.raises(MachineError, match="cannot be used"):
        listen("192.0.2.1", 0)


def test_the_command_line_explains_mistakes(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "recipe.toml").write_text(
        '[data]\n[data.train]\npath = "pairs.tsv"\n[model]\npreset = "transformer-tiny"\n'
    )
    result = subprocess.run(
        [sys.executable, "-m", "clearformer", "serve", "--port", "0", "--model", str(damaged)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert "error: " in result.stderr
    assert "has no trained weights yet" in result.stderr
    assert "\nhint: " in result.stderr
    assert "Traceback" not in result.stderr


def test_the_invitation_has_the_key_and_fits_the_model(store: Store, tmp_path: Path, folders: dict[str, Path]) -> None:
    line = invite("http://127.0.0.1:1", tmp_path / "key.txt", store)
    assert f'-H "Authorization: Bearer $(head -n1 {tmp_path}/key.txt)" -d' in line
    other = Store([folders["classifier"]])
    assert "/v1/classify" in invite("http://127.0.0.1:1", None, other)
    other.close()


def test_the_studio_is_behind_the_same_key(store: Store) -> None:
    app: Any = studio_pages()(create_app(store, KEY, hosts=None))
    with TestClient(app, base_url="http://models.example") as client:
        assert client.get("/").status_code == 401
        assert client.get("/static/main.js").status_code == 401
        assert client.get(f"/?token={KEY}").headers["content-type"].startswith("text/html")
        assert client.get("/static/main.js").status_code == 200  # by the cookie


@pytest.mark.parametrize("kind", ["gpt", "bert", "classifier", "image_classifier", "recogniser"])
def test_the_line_to_paste_works_for_every_kind(folders: dict[str, Path], serving: Any, kind: str) -> None:
    store = Store([folders[kind]])
    with serving(create_app(store)) as url:
        line = invite(url, None, store)
        done = subprocess.run(["bash", "-c", f"{line} --silent --fail-with-body"], capture_output=True, text=True)
    assert done.returncode == 0, (line, done.stdout)
    store.close()
