"""The description of the API: examples of requests, and which paths need a key.

Examples of the paths below /v1 are beside their fields. They name models as the pages in docs/ do; a request to another
server has the names that its GET /v1/models lists.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI

from clearformer.serve.guard import OPEN_PATHS

TRANSLATOR, WRITER, ENCODER, CLASSIFIER = "en-fr-small", "smollm2", "bert", "reviews"
PHOTOS, SPEECH, RUN = "photos", "speech", "my-run"
BODY = "body"  # a name for the body, which no parameter has
EXAMPLES: dict[str, dict[str, Any]] = {
    "GET /v1/models/{model}": {"model": TRANSLATOR},
    "GET /api/lens/list": {"model": TRANSLATOR, "pattern": "*.cross.pattern"},
    "POST /api/lens/{name}": {
        "name": "attention",
        BODY: {"model": TRANSLATOR, "text": "A dog.", "layer": "decoder.blocks.0.cross"},
    },
    "POST /api/activations": {
        BODY: {"model": TRANSLATOR, "text": "A dog.", "names": ["*.cross.pattern[0]"], "alternatives": 3}
    },
    "GET /api/samples": {"run": RUN},
    "GET /api/histograms": {"run": RUN},
    "GET /api/metrics": {"run": [RUN]},
    "POST /api/classify": {BODY: {"model": CLASSIFIER, "text": "A good film."}},
    "GET /api/classes": {"model": CLASSIFIER},
    "POST /api/files/lens/{name}": {"name": "ctc", "model": SPEECH},
    "POST /api/files/activations": {"model": PHOTOS, "names": ["stem.*"]},
    "POST /api/files/{name}": {"name": "classify", "model": PHOTOS},
    "GET /api/looks": {"model": PHOTOS},
    "GET /api/filters": {"model": PHOTOS},
    "GET /api/examples": {"model": PHOTOS},
    "GET /api/examples/{index}": {"index": 0, "model": PHOTOS},
    "POST /api/next": {BODY: {"model": WRITER, "text": "The dog", "top": 5}},
    "POST /api/surprise": {BODY: {"model": WRITER, "text": "The dog sees a tree"}},
    "POST /api/fill": {BODY: {"model": ENCODER, "text": "The dog ___ a tree", "n": 3}},
    "POST /api/score": {BODY: {"model": TRANSLATOR, "source": "A dog.", "texts": ["Un chien.", "Une chatte."]}},
    "POST /api/compare": {BODY: {"models": [TRANSLATOR, f"runs/{RUN}"], "text": "A dog."}},
    "POST /api/neighbours": {BODY: {"model": ENCODER, "word": "dog", "n": 5}},
    "POST /api/vectors": {BODY: {"model": ENCODER, "words": "dog cat man river"}},
    "POST /api/positions": {BODY: {"model": WRITER}},
    "POST /api/positions/shift": {BODY: {"model": TRANSLATOR, "k": 3}},
}


def describe_api(app: FastAPI, has_keys: bool) -> None:
    """Add to the description of the API what FastAPI does not know."""
    describe: Callable[[], dict[str, Any]] = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = describe()
            for path, operations in schema["paths"].items():
                for method, operation in operations.items():
                    add_examples(operation, EXAMPLES.get(f"{method.upper()} {path}", {}))
                    if has_keys:
                        operation["security"] = [] if path in OPEN_PATHS else [{"key": []}]
            if has_keys:
                schemes = schema.setdefault("components", {}).setdefault("securitySchemes", {})
                schemes["key"] = {"type": "http", "scheme": "bearer"}
        return describe()

    app.openapi = described  # type: ignore[method-assign]


def add_examples(operation: dict[str, Any], examples: Mapping[str, Any]) -> None:
    for parameter in operation.get("parameters", []):
        if parameter["in"] != "header" and parameter["name"] in examples:
            parameter["example"] = examples[parameter["name"]]
    if BODY in examples:
        operation["requestBody"]["content"]["application/json"]["example"] = examples[BODY]
