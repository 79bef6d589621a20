"""Run the application: connections that must send their headers soon, and an end that answers everyone.

SIGTERM or Ctrl-C     new requests are refused with 503; those that were accepted are answered, for some seconds;
                      then the engines end, and requests that still wait are answered with 503, too
a second one          the same at once
"""

import asyncio
import signal
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearformer.errors import ClearformerError, MachineError
from clearformer.serve.engine import END_SECONDS
from clearformer.serve.logs import Forward, Logs
from clearformer.serve.store import Store
from clearformer.serve.trace import Traffic

LAST_SECONDS = 5.0  # for the last answers to reach their clients
QUIET_SECONDS = 0.3  # at the end of draining, twice: requests on their way are refused by an answer
STOP_SECONDS = END_SECONDS + 2 * QUIET_SECONDS + LAST_SECONDS  # from the end of draining to the end, at most


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections. From now on clients can connect, and wait for the server."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise MachineError(f"--host {host}: {error.strerror}", "give an address of this machine") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        message = f"port {port} of {host} cannot be used: {error.strerror}"
        raise MachineError(message, "choose another --port") from None
    return listener


class Protocol(H11Protocol):
    """A connection that is closed unless the headers of a request arrive within some seconds (Slowloris).

    And it is cut if its client does not read: what is sent to it waits in memory.
    """

    head_seconds = 10.0
    read_seconds = 120.0
    logs = Logs()
    timer: asyncio.TimerHandle | None = None
    read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.expect()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if self.timer is None and (before is None or before.response_complete):
            self.expect()  # the next request of a connection that was kept open
        super().data_received(data)
        if self.cycle is not before:
            self.forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self.forget()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called when as much waits to be sent as a connection may hold."""
        super().pause_writing()
        if self.read_timer is None:
            self.read_timer = self.loop.call_later(self.read_seconds, self.cut)

    def resume_writing(self) -> None:
        if self.read_timer is not None:
            self.read_timer.cancel()
            self.read_timer = None
        super().resume_writing()

    def cut(self) -> None:
        """End the connection without sending the rest. The work of its request is cancelled, as if the client left."""
        message = f"the client has read nothing for {self.read_seconds:g} s, and its connection is closed"
        self.logs.write("warning", "unread", client=self.client[0] if self.client else None, message=message)
        self.transport.abort()

    def expect(self) -> None:
        self.timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def forget(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Server(uvicorn.Server):
    """uvicorn's server with the end described above. `drain_seconds` is the time for accepted requests."""

    def __init__(
        self,
        app: FastAPI,
        logs: Logs,
        drain_seconds: float = 30.0,
        head_seconds: float = 10.0,
        read_seconds: float = 120.0,
    ) -> None:
        settings = {"head_seconds": head_seconds, "read_seconds": read_seconds, "logs": logs}
        protocol = type("Connection", (Protocol,), settings)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(LAST_SECONDS),
            )
        )
        self.app, self.logs, self.drain_seconds = app, logs, drain_seconds
        self.traffic: Traffic = app.state.traffic
        self.deadline: float | None = None
        self.quiet_since = 0.0
        self.n_late = 0  # accepted requests that were answered with 503, since their time was over
        self.failure: ClearformerError | None = None
        """Why the server had to stop."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        is_first = self.deadline is None
        self.deadline = time.monotonic() + (self.drain_seconds if is_first else 0)
        self.traffic.is_draining = self.app.state.is_closing = True

    def stop(self, failure: ClearformerError) -> None:
        """Stop because of an error; `run` raises it."""
        self.failure, self.should_exit = failure, True

    async def on_tick(self, counter: int) -> bool:
        """Called every tenth of a second; True ends the server."""
        if self.deadline is not None and not self.should_exit:
            now, n_active = time.monotonic(), self.traffic.active
            self.quiet_since = self.quiet_since if not n_active and self.quiet_since else now
            is_late = now > self.deadline
            if is_late or (not n_active and now - self.quiet_since >= QUIET_SECONDS):
                self.n_late = n_active
                await asyncio.to_thread(self.app.state.store.close)  # what still waits is answered with 503
                for server in self.servers:
                    server.close()  # no new connections; those that are open may still ask, and are refused
                await asyncio.sleep(QUIET_SECONDS)
                self.should_exit = True
        return await super().on_tick(counter)

    def run_on(self, listener: socket.socket) -> None:
        """Answer requests until a signal."""
        import logging

        forward = Forward(self.logs)
        for name in ("uvicorn.error", "uvicorn.asgi"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [forward], False
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with warnings.catch_warnings():
                warnings.showwarning = self.logs.warn
                self.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.failure is not None:
            raise self.failure
        self.logs.write("info", "stop", late=self.n_late, message="the server has stopped")


def prepare(server: Server, store: Store, say: Callable[[], None]) -> None:
    """Open all given models, then `say` that the server is ready. An error stops the server."""
    try:
        for name in store.given:
            store.open(name)
        say()
    except ClearformerError as error:
        server.stop(error)
    except OSError as error:
        message = f"the models cannot be opened: {error.strerror or error}"
        server.stop(MachineError(message, "free memory, processes or files of this machine"))
    except Exception as error:
        server.logs.bug(error)
        message = f"the models cannot be opened, because of an unexpected error: {type(error).__name__}"
        server.stop(MachineError(message, "the log has its traceback"))
