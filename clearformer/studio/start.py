"""Start the studio: a server on this machine alone, with its pages, at a free port.

start(models=["runs/mine"], runs="runs/")        prints the URL, opens it, and returns after Ctrl-C
"""

import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from clearformer.errors import ClearformerError, MachineError
from clearformer.loading.folder import DEFAULT
from clearformer.serve.app import create_app
from clearformer.serve.store import Store
from clearformer.studio.pages import mount_pages

ADDRESS = "127.0.0.1"
EXAMPLE = "Where is the train station?"


def start(
    models: Sequence[str | Path] = (),
    runs: str | Path | None = None,
    port: int = 0,
    device: str = "cpu",
    is_opened: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the studio until Ctrl-C. `port` 0 chooses a free one; `say` receives the URL with its token."""
    try:
        import uvicorn
    except ModuleNotFoundError:
        message = "the studio needs uvicorn, which is not installed"
        raise MachineError(message, "pip install 'clearformer[studio]'") from None
    store, token = Store([*models, DEFAULT], runs, device), secrets.token_urlsafe(24)
    app = mount_pages(create_app(store, token))
    with listen(port) as listener:
        url = f"http://{ADDRESS}:{listener.getsockname()[1]}/?token={token}"
        say(url)
        Thread(target=prepare, args=[store], daemon=True).start()
        if is_opened:
            Thread(target=webbrowser.open, args=[url], daemon=True).start()
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, lifespan="off")
        run(uvicorn.Server(config), app, listener)


def listen(port: int) -> socket.socket:
    """Return a socket that accepts connections from this machine alone."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        raise MachineError(
            f"port {port} cannot be used: {error.strerror}", "choose another --port, or omit it"
        ) from None
    listener.listen(128)  # from now on a browser can connect, and waits for the server
    return listener


def run(server: Any, app: Any, listener: socket.socket) -> None:
    """Run the server until SIGINT or SIGTERM, which also ends the open streams of events."""
    handle_exit = server.handle_exit

    def end(number: int, frame: Any) -> None:
        app.state.is_closing = True
        handle_exit(signal.SIGTERM, frame)  # SIGINT would be raised again as KeyboardInterrupt afterwards

    server.handle_exit = end
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn sends itself the signal once it has ended
    try:
        server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)


def prepare(store: Store) -> None:
    """Open the first model and use it once, so that the first translation of a user does not wait for it."""
    try:
        opened = store.open()
        with opened.use() as handle:
            if "translate" in handle.verbs:
                handle(EXAMPLE)
    except ClearformerError:
        pass  # the page asks again, and shows the message
