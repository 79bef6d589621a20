"""What happens to a request, from its first byte to the last byte of its answer: its id, its time, one line of log.

A request may bring an id (X-Request-Id); the answer has the same, or a new one. While the server drains, requests
that come are refused. An unexpected error is answered here, so that every request has an answer and a line.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from clearformer.serve.answers import GONE, error_of
from clearformer.serve.guard import OPEN_PATHS, Receive, Scope, Send, refuse
from clearformer.serve.logs import Logs
from clearformer.serve.metrics import Metrics
from clearformer.serve.refusals import Refused, later

KEY = "clearformer.trace"


@dataclass
class Trace:
    """One request. Routes add the model, tokens and texts."""

    id: str
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    is_complete: bool = False
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    texts: Any = None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started


def trace_of(request: Request) -> Trace:
    trace: Trace = request.scope[KEY]
    return trace


class Traffic:
    """How many accepted requests are being answered, and whether new ones are accepted."""

    def __init__(self) -> None:
        self.active, self.is_draining = 0, False


class Tracing:
    """ASGI middleware around everything else."""

    def __init__(self, app: Any, traffic: Traffic, metrics: Metrics, logs: Logs) -> None:
        self.app, self.traffic, self.metrics, self.logs = app, traffic, metrics, logs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        trace = scope[KEY] = Trace(request_id(scope))
        is_refused = self.traffic.is_draining and scope["path"] not in OPEN_PATHS
        is_work = not is_refused and scope["path"] not in OPEN_PATHS
        self.traffic.active += is_work

        async def send_traced(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                more = [(b"x-request-id", trace.id.encode())]
                more += [(b"connection", b"close")] if self.traffic.is_draining else []
                message["headers"] = [*message.get("headers", []), *more]
            elif not message.get("more_body", False):
                trace.is_complete = True
            await send(message)

        try:
            if is_refused:
                await refuse(draining(), send_traced)
            else:
                await self.app(scope, receive, send_traced)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.logs.bug(error, id=trace.id, path=scope["path"])
            if trace.status == 0:
                await refuse_bug(error, send_traced)
        finally:
            self.traffic.active -= is_work
            self.report(scope, trace)

    def report(self, scope: Scope, trace: Trace) -> None:
        """Count a request that is over, and log it."""
        status = trace.status if trace.is_complete else GONE
        path = getattr(scope.get("route"), "path", "other")  # not the path itself: there may be any number of them
        if path not in OPEN_PATHS:
            self.metrics.requests.add(path=path, method=scope["method"], status=str(status))
            self.metrics.latency.add(trace.seconds, path=path)
        self.logs.write(
            "error" if status >= 500 and status != 503 else "info",
            "request",
            id=trace.id,
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=round(trace.seconds, 4),
            client=scope["client"][0] if scope.get("client") else None,
            model=trace.model,
            prompt_tokens=trace.prompt_tokens,
            completion_tokens=trace.completion_tokens,
            texts=trace.texts if self.logs.has_texts else None,
        )


def request_id(scope: Scope) -> str:
    """Return the id that the client gives, if it is one that can be logged, or a new one."""
    given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), "")
    return given if re.fullmatch(r"[\w.:-]{1,128}", given, re.ASCII) else f"req-{secrets.token_hex(12)}"


def draining() -> Refused:
    return Refused(503, "the server is stopping", "ask another one, or try again later", "draining", None, later(5))


async def refuse_bug(error: Exception, send: Send) -> None:
    body = json.dumps(error_of(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})
