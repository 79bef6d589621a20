"""GET /health, /ready and /metrics, for those who look after a server.

/health     503 if the engine of a model is stuck: restart the server
/ready      503 until all given models are in memory, and once the server is stopping: send requests elsewhere
"""

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from clearformer.serve.answers import JSONText
from clearformer.serve.asking import desk_of
from clearformer.serve.metrics import CONTENT_TYPE

router = APIRouter()


class Health(BaseModel):
    status: Literal["ok"]


class Unwell(BaseModel):
    status: Literal["stuck", "loading", "draining"]
    models: list[str] | None = None


UNWELL = {503: {"model": Unwell, "description": "The server cannot work at present."}}


@router.get("/health", response_model=Health, responses=UNWELL)  # type: ignore[arg-type]
async def health(request: Request) -> Response:
    """Say whether the server works. No key is needed."""
    stuck = [name for name, opened in desk_of(request).store.opened.items() if opened.engine.is_stuck]
    return JSONText({"status": "stuck", "models": stuck}, 503) if stuck else JSONText({"status": "ok"})


@router.get("/ready", response_model=Health, responses=UNWELL)  # type: ignore[arg-type]
async def ready(request: Request) -> Response:
    """Say whether the server accepts work. No key is needed."""
    if request.app.state.traffic.is_draining:
        return JSONText({"status": "draining"}, 503)
    store = desk_of(request).store
    missing = [name for name in store.given if name not in store.opened]
    return JSONText({"status": "loading", "models": missing}, 503) if missing else JSONText({"status": "ok"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request) -> Response:
    """Return measurements in the text format of Prometheus."""
    return Response(desk_of(request).metrics.render(), media_type=CONTENT_TYPE)
