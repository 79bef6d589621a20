"""Requests that schemathesis makes up from the description of the API, valid and invalid ones, to every path.

`make test-schema`, or for more of them: pytest -m schema tests/serve/test_schema.py --cases 10000.
benchmarks/serve_schema.py records the answers by path and status.
"""

import json
from collections import Counter
from itertools import count, product
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import httpx2 as httpx
import schemathesis
import small_models
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from media_models import as_png, stripes, tone

from clearformer.serve.app import create_app
from clearformer.serve.store import Store

pytestmark = pytest.mark.schema

KEY = {"Authorization": "Bearer secret-token"}
MODELS = {
    "/v1/translate": "en-fr-small",
    "/v1/completions": "smollm2",
    "/v1/chat/completions": "smollm2",
    "/v1/embeddings": "bert",
    "/v1/classify": "reviews",
    "/v1/score": "smollm2",
    "/v1/fill": "bert",
    "/v1/audio/transcriptions": "speech",
    "/api/activations": "en-fr-small",
    "/api/lens/{name}": "smollm2",
}
NO_EXAMPLE = {"GET /api/examples/{index}"}  # these small models have no data


@pytest.fixture(scope="module")
def schema_url(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Any:
    """A server of small models alone, by the names in the examples: a made-up request may ask for 32 samples."""
    folder, runs = tmp_path_factory.mktemp("schema"), tmp_path_factory.mktemp("runs")
    writers = {
        "en-fr-small": small_models.write_translator,
        "smollm2": small_models.write_gpt,
        "bert": small_models.write_bert,
        "all-MiniLM-L6-v2": small_models.write_bert,
        "reviews": small_models.write_classifier,
        "photos": small_models.write_image_classifier,
        "speech": small_models.write_recogniser,
    }
    small_models.write_translator(runs / "my-run")
    (runs / "my-run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    store = Store([write(folder / name) for name, write in writers.items()], runs)
    for name in store.given:
        store.open(name)
    with serving(create_app(store, "secret-token", hosts=None)) as url:
        yield url
    store.close()


@pytest.fixture(scope="module")
def described(schema_url: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{schema_url}/api/openapi.json", headers=KEY, timeout=120).json()
    return answer


def example_of(path: str, operation: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of httpx.request for the example of an operation."""
    parameters = {one["name"]: one["example"] for one in operation.get("parameters", []) if "example" in one}
    inside = {name: value for name, value in parameters.items() if f"{{{name}}}" in path}
    request: dict[str, Any] = {"url": path.format(**inside)}
    request["params"] = {name: value for name, value in parameters.items() if name not in inside}
    content = operation.get("requestBody", {}).get("content", {})
    if path == "/v1/audio/transcriptions":
        return {**request, "files": {"file": ("a.wav", tone("low high", 2000))}, "data": {"model": "speech"}}
    if "application/octet-stream" in content:
        is_sound = parameters["model"] == "speech"
        return {**request, "content": tone("low high", 2000) if is_sound else as_png(stripes(True, 0))}
    for one in content.values():
        schema = described["components"]["schemas"][one["schema"]["$ref"].rsplit("/", 1)[1]]
        request["json"] = one["example"] if "example" in one else schema["examples"][0]
    return request


def ask_for_examples(url: str, described: dict[str, Any]) -> dict[str, httpx.Response]:
    """Return the answer to the example of every operation."""
    answers = {}
    with httpx.Client(base_url=url, timeout=120) as client:
        for path, operations in described["paths"].items():
            for method, operation in operations.items():
                arguments = example_of(path, operation, described)
                answers[f"{method.upper()} {path}"] = client.request(method, headers=KEY, **arguments)
    return answers


def test_every_example_is_answered(schema_url: str, described: dict[str, Any]) -> None:
    answers = ask_for_examples(schema_url, described)
    failed = {label: answer.text for label, answer in answers.items() if answer.status_code != 200}
    assert failed.keys() == NO_EXAMPLE, failed


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


@pytest.mark.timeout(3600)
def test_no_bug_and_nothing_undocumented(
    schema_url: str, described: dict[str, Any], pytestconfig: pytest.Config
) -> None:
    schema = schemathesis.openapi.from_dict(described)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 15
    n_cases = pytestconfig.getoption("--cases")
    n_each = max(1, n_cases // (2 * len(operations)))
    statuses: Counter[tuple[str, int]] = Counter()
    for label, answer in ask_for_examples(schema_url, described).items():
        statuses[label, answer.status_code] += 1
    for round in count():  # paths without parameters have few different requests: the others have more of them
        for operation, mode in product(operations, schemathesis.GenerationMode):
            make_up(schema_url, operation, mode, n_each, round, statuses)
        if sum(statuses.values()) >= n_cases:
            break
    counts: dict[str, dict[int, int]] = {}
    for (label, status), n in sorted(statuses.items()):
        counts.setdefault(label, {})[status] = n
    if (path := pytestconfig.getoption("--counts")) is not None:
        path.write_text(json.dumps(counts), encoding="utf-8")
    answered = {label for label, status in statuses if status == 200}
    assert {operation.label for operation in operations} - answered <= NO_EXAMPLE
    assert sum(statuses.values()) >= n_cases


def make_up(url: str, operation: Any, mode: Any, n: int, round: int, statuses: Counter[tuple[str, int]]) -> None:
    """Send up to n requests to an operation, and check and count their answers."""
    try:
        strategy = operation.as_strategy(generation_mode=mode)
    except Exception:  # a path without parameters has no invalid request
        return

    @seed(round)
    @settings(
        max_examples=n,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(case=strategy, is_model=st.integers(0, 9))
    def check(case: Any, is_model: int) -> None:
        if isinstance(case.body, dict) and is_model and case.operation.path in MODELS:
            case.body = {**case.body, "model": MODELS[case.operation.path]}
        response = case.call_and_validate(url, headers=KEY, checks=checks(), timeout=120)
        statuses[case.operation.label, response.status_code] += 1

    try:
        check()
    except Exception as error:
        if "Unsatisfiable" not in type(error).__name__:
            raise
