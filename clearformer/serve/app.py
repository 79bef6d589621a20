"""The application: models and runs of this machine by HTTP.

    GET  /health, /ready, /metrics                           health.py; no key needed but for the last
    …    /v1/models, completions, chat/completions,          v1/: OpenAI's API,
         embeddings, audio/transcriptions
    POST /v1/translate, classify, score, fill                and commands of ours; translate.py
    GET  /api/models                                         the rest is for the studio
    …    /api/lens, activations                              lens.py
    …    /api/runs, metrics                                  runs.py
    …    /api/classify, classes                              classify.py
    …    /api/files                                          looks.py
    …    /api/examples                                       examples.py
    …    /api/next, surprise, fill, score                    language.py
    …    /api/compare, neighbours, vectors, positions        compare.py, neighbours.py, positions.py
    GET  /api/openapi.json                                   a description of all of these, for other programs

trace.py and guard.py see every request first. All answers are JSON, tensors or events, never HTML; pages are mounted
from outside (studio/).
"""

from collections.abc import Sequence

from clearformer.errors import MachineError

try:
    import python_multipart  # noqa: F401
    from fastapi import Depends, FastAPI, Request
    from fastapi.responses import Response
except ModuleNotFoundError as error:
    package = {"fastapi": "FastAPI", "python_multipart": "python-multipart"}.get(str(error.name), error.name)
    raise MachineError(
        f"the server needs {package}, which is not installed", "pip install 'clearformer[serve]'"
    ) from None

from clearformer.serve import (
    classify,
    compare,
    examples,
    health,
    language,
    lens,
    looks,
    neighbours,
    positions,
    runs,
    translate,
    v1,
)
from clearformer.serve.answers import OPENAPI, JSONText, explain_errors, refuse_unknown_queries
from clearformer.serve.asking import Desk
from clearformer.serve.described import describe_api
from clearformer.serve.gauges import add_gauges
from clearformer.serve.guard import LOOPBACK, Guard
from clearformer.serve.limits import Limits
from clearformer.serve.logs import Logs, SilentLogs
from clearformer.serve.metrics import Metrics
from clearformer.serve.pressure import Pressure
from clearformer.serve.schemas import ERRORS
from clearformer.serve.store import Store
from clearformer.serve.trace import Tracing, Traffic
from clearformer.version import __version__

FOR_STUDIO = (lens, runs, classify, looks, examples, language, compare, neighbours, positions)


def create_app(
    store: Store,
    token: str | Sequence[str] | None = None,
    hosts: tuple[str, ...] | None = LOOPBACK,
    limits: Limits | None = None,
    logs: Logs | None = None,
) -> FastAPI:
    """Build the application. `token` is one key or several; without any, every program of this machine may use it."""
    app = FastAPI(
        title="Clearformer",
        version=__version__,
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        dependencies=[Depends(refuse_unknown_queries)],
    )
    limits, metrics, traffic = limits or Limits(), Metrics(), Traffic()
    app.state.store, app.state.is_closing, app.state.traffic = store, False, traffic
    logs = logs or SilentLogs()
    app.state.desk = Desk(store, limits, metrics, Pressure(limits.free_memory), logs)
    add_gauges(metrics, store, traffic)
    explain_errors(app)
    for part in (health, translate, *v1.PARTS, *FOR_STUDIO):
        app.include_router(part.router)

    @app.get("/api/models")
    def all_models(request: Request) -> Response:
        known: Store = request.app.state.store
        return JSONText({"version": __version__, "default": known.default, "models": known.describe()})

    keys = [token] if isinstance(token, str) else list(token or ())
    describe_api(app, bool(keys))
    app.add_middleware(Guard, keys=keys, hosts=hosts, limits=limits)
    app.add_middleware(Tracing, traffic=traffic, metrics=metrics, logs=logs)
    return app
