"""Start a server: models by name at an address, with keys if other machines can reach it.

start(models=["runs/mine"], port=8000)                       for this machine
start(host="0.0.0.0", keys=read_keys(Path("key.txt")))       for others
"""

import ipaddress
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from clearformer.errors import ConfigError, MachineError
from clearformer.handles.image_model import ImageModel
from clearformer.handles.transcriber import Transcriber
from clearformer.serve.app import create_app
from clearformer.serve.guard import LOOPBACK
from clearformer.serve.limits import Limits
from clearformer.serve.logs import Logs
from clearformer.serve.store import Store
from clearformer.verbs.load import open_packed

SHORTEST_KEY = 16
EXAMPLES = {
    "translate": ("/v1/translate", '{"text": "Where is the station?"}'),
    "generate": ("/v1/completions", '{"prompt": "Once upon a time", "max_tokens": 32}'),
    "classify": ("/v1/classify", '{"text": "A fine film."}'),
    "embed": ("/v1/embeddings", '{"input": "Someone cycles."}'),
    "score": ("/v1/score", '{"text": ["The man pulled a cart", "The man pooled a cart"]}'),
}


def start(
    models: Sequence[str | Path] = (),
    adapters: Mapping[str, str | Path] | None = None,
    runs: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    key_file: Path | None = None,
    device: str = "cpu",
    limits: Limits | None = None,
    workers: int | None = None,
    drain_seconds: float = 30.0,
    has_texts: bool = False,
    mount: Callable[[Any], Any] = lambda app: app,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    `workers` is the number of processes per model, as in `Store`. `mount` adds pages to the application; `say` receives
    what to type next.
    """
    try:
        from clearformer.serve.server import Server, listen, prepare
    except ModuleNotFoundError as error:
        if error.name != "uvicorn":
            raise
        message = "the server needs uvicorn, which is not installed"
        raise MachineError(message, "pip install 'clearformer[serve]'") from None
    keys = () if key_file is None else read_keys(key_file)
    is_local = is_loopback(host)
    if not is_local and not keys:
        hint = "create one: (umask 077; openssl rand -hex 24 > key.txt), then add --api-key-file key.txt"
        raise ConfigError(f"--host {host} is open to other machines and needs a key", hint)
    limits = limits or Limits()
    store = Store(models, runs, device, limits.queue, open_packed, adapters, workers, limits.seconds)
    logs = Logs(sys.stderr, has_texts)
    app = mount(create_app(store, keys, LOOPBACK if is_local and not keys else None, limits, logs))
    with listen(host, port) as listener:
        server = Server(app, logs, drain_seconds, limits.head_seconds, limits.seconds)
        url = f"http://{as_url(host)}:{listener.getsockname()[1]}"

        def ready() -> None:
            say(invite(url, key_file, store))
            logs.write("info", "start", url=url, models=[*store.given], message="the server is ready")

        Thread(target=prepare, args=[server, store, ready], daemon=True).start()
        server.run_on(listener)


def parse_adapters(values: Sequence[str]) -> dict[str, str]:
    """Parse NAME=RUN of every --adapter."""
    pairs = [value.partition("=") for value in values]
    for name, equals, run in pairs:
        if not re.fullmatch(r"[\w-]+", name, re.ASCII) or not run:
            raise ConfigError(
                f"--adapter {name}{equals}{run} is not NAME=RUN", "use only letters, digits, _ and - in NAME"
            )
    if twice := next((name for i, (name, *_) in enumerate(pairs) if name in [one[0] for one in pairs[:i]]), None):
        raise ConfigError(f"--adapter {twice} is given twice", "choose another name")
    return {name: run for name, _, run in pairs}


def read_keys(path: Path) -> list[str]:
    """Read the keys of a file, one per line. The file must be readable by its owner alone.

    Credentials of systemd are also readable by a group, which has no other members.
    """
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"--api-key-file {path} cannot be read: {reason}", "give a file with a key") from None
    allowed = stat.S_IRWXU | stat.S_IRGRP if is_credential(path) else stat.S_IRWXU
    if stat.S_IMODE(mode) & ~allowed & 0o777:
        raise ConfigError(f"--api-key-file {path} can be read by other users", f"chmod 600 {path}")
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if not keys:
        raise ConfigError(f"--api-key-file {path} is empty", f"openssl rand -hex 24 > {path}")
    if bad := next((key for key in keys if len(key) < SHORTEST_KEY or not key.isascii() or " " in key), None):
        raise ConfigError(
            f"--api-key-file {path}: a key has at least {SHORTEST_KEY} characters and no spaces, not {len(bad)}",
            f"openssl rand -hex 24 > {path}",
        )
    return keys


def is_credential(path: Path) -> bool:
    """Whether systemd passes a file to this service: LoadCredential in its unit."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and path.resolve().is_relative_to(Path(str(folder)).resolve())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def as_url(host: str) -> str:
    """Return a host as it is written in a URL of this machine."""
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"[{local}]" if ":" in local and not local.startswith("[") else local


def invite(url: str, key_file: Path | None, store: Store) -> str:
    """Return what to type next: a request to the first model that works when pasted."""
    handle = store.open().handle
    verbs = () if isinstance(handle, ImageModel | Transcriber) else handle.verbs  # examples are texts
    path, body = next((EXAMPLES[verb] for verb in EXAMPLES if verb in verbs), ("/v1/models", ""))
    key = f' -H "Authorization: Bearer $(head -n1 {key_file})"' if key_file else ""
    return f"curl {url}{path}{key}{f' -d {chr(39)}{body}{chr(39)}' if body else ''}"
