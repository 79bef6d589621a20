"""Streams of events that always end: with an event that describes the error, if there is one, and [DONE].

data: {"error": {"message": …, "type": …, …}}     in OpenAI's shape
data: [DONE]
"""

from collections.abc import AsyncIterator, Callable, Iterator

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from clearformer.errors import ClearformerError
from clearformer.serve.answers import STREAM_HEADERS, as_json, error_of
from clearformer.serve.asking import desk_of
from clearformer.serve.refusals import Refused
from clearformer.serve.trace import trace_of

DONE = "data: [DONE]\n\n"
Chunks = AsyncIterator[str] | Iterator[str]


def data(value: object) -> str:
    """Return an event without a name, as OpenAI's streams have them."""
    return f"data: {as_json(value)}\n\n"


def error_data(error: Exception) -> str:
    return data(error_of(error))


def streamed(request: Request, chunks: Chunks, describe: Callable[[Exception], str] = error_data) -> StreamingResponse:
    """Answer with events. `describe` returns the event for an error."""
    return StreamingResponse(guarded(request, chunks, describe), media_type="text/event-stream", headers=STREAM_HEADERS)


async def guarded(request: Request, chunks: Chunks, describe: Callable[[Exception], str]) -> AsyncIterator[str]:
    """Yield the chunks of a stream, then its end. The status has been sent: an error after it is an event, too."""
    try:
        async for chunk in chunks if isinstance(chunks, AsyncIterator) else iterate_in_threadpool(chunks):
            yield chunk
    except Exception as error:
        if not isinstance(error, ClearformerError | Refused):
            desk_of(request).logs.bug(error, id=trace_of(request).id, path=request.url.path)
        yield describe(error)
    yield DONE
