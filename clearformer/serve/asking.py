"""Give work to the engine of a model, and wait for it: with a deadline, and only as long as the client waits, too.

results = await ask(request, model, Translate(texts))            for every text, its results
rows = await apply(request, model, Score(), texts)               for every item, its row
async for event in listen(request, ticket): …                    the same, token by token
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from fastapi import Request

from clearformer.errors import CheckpointError
from clearformer.handles.handle import Handle
from clearformer.serve.limits import Limits
from clearformer.serve.logs import Logs
from clearformer.serve.metrics import Metrics
from clearformer.serve.pressure import Pressure
from clearformer.serve.shared import Apply, Verb
from clearformer.serve.store import Opened, Store
from clearformer.serve.ticket import Ticket
from clearformer.serve.trace import trace_of
from clearformer.serve.work import Call, Closing, Event, Expired, Generate, Translate, Unread, Work
from clearformer.verbs.load import uses

LITTLE_TEXT = 4000  # characters that are tokenised at once; more are tokenised by another thread
A_FILE = sys.maxsize  # for n_chars: as much as any text
AnyWork = Translate | Generate | Apply | Call
FILES = ThreadPoolExecutor(4, "files")  # apart from the threads for texts, which must not wait for images
PATIENCE = 5.0  # seconds after the deadline, for an engine that does not notice it


@dataclass
class Desk:
    """What routes share: the models, the limits, the measurements and the log of a server."""

    store: Store
    limits: Limits
    metrics: Metrics
    pressure: Pressure
    logs: Logs


def desk_of(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


@dataclass(frozen=True)
class Chosen:
    """The model of a request, and the adapter that it names, if any."""

    opened: Opened
    adapter: str | None
    name: str

    @property
    def handle(self) -> Any:
        return self.opened.handle if self.adapter is None else self.opened.engine.served.adapters[self.adapter]


async def open_for(request: Request, verb: str, model: str | None) -> tuple[str, Chosen]:
    """Return the name of a model and the model. Raises an error if it does not exist or cannot do the verb."""
    store = desk_of(request).store
    name = model or store.default
    trace_of(request).model = name
    served = store.serve_now(name)
    if served is None:
        served = await asyncio.to_thread(store.serve, name)
    chosen = Chosen(*served, name)
    if verb not in chosen.handle.verbs:
        raise cannot(chosen.handle, name, verb)
    return name, chosen


def cannot(handle: Handle, name: str, verb: str) -> CheckpointError:
    return CheckpointError(f"{name} is {handle.kind}: it cannot {verb}", uses(handle))


async def submit(request: Request, chosen: Chosen, work: AnyWork, n_chars: int = 0) -> Ticket:
    """Queue work. Planning it means to tokenise its texts or to decode its files, which may take long."""
    desk, loop = desk_of(request), asyncio.get_running_loop()
    desk.pressure.check()
    while True:
        engine, adapted = chosen.opened.engine, cast(Work, replace(work, adapter=chosen.adapter))
        try:
            if n_chars <= LITTLE_TEXT:
                return engine.submit(adapted, desk.limits.seconds)
            threads = FILES if n_chars == A_FILE else None
            return await loop.run_in_executor(threads, engine.submit, adapted, desk.limits.seconds)
        except Closing:
            if desk.store.is_closing:
                raise
            # The model has made room for another one since it was chosen.
            again = Chosen(*await asyncio.to_thread(desk.store.serve, chosen.name), chosen.name)
            if again.opened is chosen.opened:
                raise
            chosen = again


async def ask(request: Request, chosen: Chosen, work: AnyWork, n_chars: int = 0) -> tuple[list[list[Any]], Ticket]:
    """Return the results of all texts, and the ticket with their numbers of tokens."""
    ticket = await submit(request, chosen, work, n_chars)
    async with attended(request, ticket):
        results = await ticket
    return results, ticket


async def apply(request: Request, chosen: Chosen, verb: Verb, items: Sequence[Any], n_chars: int = 0) -> list[Any]:
    """Return a row for each item, computed in passes that requests share."""
    [[rows]], _ = await ask(request, chosen, Apply(verb, items), n_chars)
    return list(rows)


async def call(request: Request, chosen: Chosen, function: Any) -> Any:
    """Return function(handle), computed by the thread of the engine."""
    [[result]], _ = await ask(request, chosen, Call(function))
    return result


async def listen(request: Request, ticket: Ticket) -> AsyncIterator[Event]:
    """Yield the events of streamed work, and cancel it if they are no longer read."""
    with limited(ticket):
        try:
            async for event in ticket:
                yield event
        finally:
            ticket.cancel()
            measure(request, ticket)
            if isinstance(ticket.error, Unread):
                desk_of(request).logs.write("warning", "unread", id=trace_of(request).id, message=ticket.error.message)


@asynccontextmanager
async def attended(request: Request, ticket: Ticket) -> AsyncIterator[None]:
    """Cancel work if the client goes away, the request is given up or the time is over, and measure it."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        ticket.cancel()

    watcher = asyncio.create_task(watch())
    with limited(ticket):
        try:
            yield
        finally:
            watcher.cancel()
            ticket.cancel()
            measure(request, ticket)
            with suppress(asyncio.CancelledError):
                await watcher


@contextmanager
def limited(ticket: Ticket) -> Iterator[None]:
    """End work some seconds after its deadline if the engine, which is stuck then, has not done it."""
    if ticket.deadline is None:
        yield
        return
    seconds = ticket.deadline - time.monotonic() + PATIENCE
    late = Expired("the answer took too long", "send less at a time, or allow more time")
    timer = asyncio.get_running_loop().call_later(seconds, ticket.fail, late)
    try:
        yield
    finally:
        timer.cancel()


def measure(request: Request, ticket: Ticket) -> None:
    """Add the tokens and times of finished work to the measurements and the log."""
    trace, metrics = trace_of(request), desk_of(request).metrics
    name = trace.model or ""
    trace.prompt_tokens, trace.completion_tokens = ticket.n_prompt, ticket.n_generated
    metrics.prompt_tokens.add(ticket.n_prompt, model_name=name)
    metrics.generation_tokens.add(ticket.n_generated, model_name=name)
    for reason, n in ticket.reasons.items():
        metrics.success.add(n, model_name=name, finished_reason=reason)
    if ticket.first_token is not None and ticket.finished is not None:
        metrics.first_token.add(ticket.first_token - ticket.submitted, model_name=name)
        if ticket.n_generated > 1:
            seconds = (ticket.finished - ticket.first_token) / (ticket.n_generated - 1)
            metrics.per_token.add(seconds, model_name=name)
