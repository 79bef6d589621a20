"""Requests that schemathesis makes up from the description of the API, valid and invalid ones, to every path.

`make test-schema`, or for more of them: pytest -m schema tests/serve/test_schema.py --cases 10000.
benchmarks/serve_schema.py records the answers by path and status.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import httpx2 as httpx
import schemathesis
import small_models
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clearformer.serve.app import create_app
from clearformer.serve.store import Store

pytestmark = pytest.mark.schema

KEY = {"Authorization": "Bearer secret-token"}
MODELS = {
    "/v1/translate": "translator",
    "/v1/completions": "gpt",
    "/v1/chat/completions": "gpt",
    "/v1/embeddings": "bert",
    "/v1/classify": "classifier",
    "/v1/score": "gpt",
    "/v1/fill": "bert",
    "/v1/audio/transcriptions": "recogniser",
    "/api/activations": "translator",
    "/api/lens/{name}": "gpt",
}


@pytest.fixture(scope="module")
def schema_url(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Any:
    """A server of small models alone: a made-up request may ask for thirty-two samples."""
    folder = tmp_path_factory.mktemp("schema")
    store = Store([small_models.write_translator(folder / "translator"), *folders.values()], folder)
    for name in store.given:
        store.open(name)
    with serving(create_app(store, "secret-token", hosts=None)) as url:
        yield url
    store.close()


def checks() -> list[Any]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]


ENOUGH = 30  # valid requests of a path, so that some are answered: most that are made up name an unknown model


@pytest.mark.timeout(3600)
def test_no_bug_and_nothing_undocumented(schema_url: str, pytestconfig: pytest.Config) -> None:
    described = httpx.get(f"{schema_url}/api/openapi.json", headers=KEY, timeout=120).json()
    schema = schemathesis.openapi.from_dict(described)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 15
    n_each = max(1, pytestconfig.getoption("--cases") // (2 * len(operations)))
    statuses: Counter[tuple[str, int]] = Counter()
    for operation in operations:
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            try:
                strategy = operation.as_strategy(generation_mode=mode)
            except Exception:  # a path without parameters has no invalid request
                continue

            @settings(
                max_examples=n_each,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.explicit, Phase.generate, Phase.shrink],
                derandomize=True,
            )
            @given(case=strategy, is_model=st.integers(0, 9))
            def check(case: Any, is_model: int) -> None:
                if isinstance(case.body, dict) and is_model and case.operation.path in MODELS:
                    case.body = {**case.body, "model": MODELS[case.operation.path]}
                response = case.call_and_validate(schema_url, headers=KEY, checks=checks(), timeout=120)
                statuses[case.operation.label, response.status_code] += 1

            try:
                check()
            except Exception as error:
                if "Unsatisfiable" not in type(error).__name__:
                    raise
    counts: dict[str, dict[int, int]] = {}
    for (label, status), n in sorted(statuses.items()):
        counts.setdefault(label, {})[status] = n
    if (path := pytestconfig.getoption("--counts")) is not None:
        path.write_text(json.dumps(counts), encoding="utf-8")
    answered = {label for label, status in statuses if status == 200}
    for called in MODELS if n_each >= ENOUGH else ():
        assert called.startswith(("/api/lens", "/v1/fill", "/v1/audio")) or f"POST {called}" in answered, called
    assert sum(statuses.values()) > 0.5 * pytestconfig.getoption("--cases")
