"""Only pages of this server and programs that know its token are answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from clearformer.serve.app import create_app
from clearformer.serve.guard import Guard
from clearformer.serve.limits import Limits
from clearformer.serve.store import Store

TOKEN, HERE = "secret-token", "http://127.0.0.1:8137"
MAX_BYTES = Limits().body


def all_paths(routes: Any) -> Iterator[str]:
    """The paths of the whole route table; some versions of FastAPI keep the routes of a router together."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from all_paths(route.original_router.routes)
        else:
            yield route.path


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def test_everything_but_health_needs_the_key(client: TestClient, stranger: TestClient) -> None:
    """The whole route table, not only what the description of the API has."""
    assert stranger.get("/health").json() == {"status": "ok"}
    assert stranger.get("/ready").status_code in (200, 503)
    paths = set(all_paths(client.app.routes))
    assert {"/v1/translate", "/v1/completions", "/metrics", "/api/openapi.json", "/static", "/"} <= paths
    others = ["/static/main.js", "/nowhere", "/health/", "/health%20", "/HEALTH"]
    for path in [*(paths - {"/health", "/ready"}), *others]:
        for method in METHODS:
            response = stranger.request(method, path.replace("{", "").replace("}", ""))
            assert response.status_code == 401, (method, path)
            assert method == "HEAD" or response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        TOKEN,
        "Bearer é",
    ],
)
def test_other_keys_are_refused(stranger: TestClient, header: str) -> None:
    response = stranger.get("/api/models", headers={"Authorization": header.encode("latin-1")})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_server_may_have_several_keys(store: Store) -> None:
    with TestClient(create_app(store, ["first-key", "second-key"]), base_url=HERE) as client:
        statuses = [
            client.get("/v1/models", headers={"Authorization": f"bearer {key}"}).status_code
            for key in ("first-key", "second-key", "third-key", "first-keysecond-key")
        ]
    assert statuses == [200, 200, 401, 401]


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is compared, by a function whose time does not depend on where the texts differ."""
    import hmac

    calls = []
    monkeypatch.setattr(
        "clearformer.serve.guard.hmac.compare_digest", lambda a, b: calls.append(b) or hmac.compare_digest.__name__ == a
    )
    assert not Guard(None, ["one", "two"]).is_key("one!")
    assert calls == [b"one", b"two"]


def test_any_host_is_accepted_with_a_key(store: Store) -> None:
    with TestClient(create_app(store, TOKEN, hosts=None), base_url="http://models.example:9000") as client:
        key = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/models", headers=key).status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={**key, "Origin": "https://models.example:9000"}).status_code == 200
        assert client.get("/v1/models", headers={**key, "Origin": "https://evil.example"}).status_code == 403


def test_the_token_in_the_url_becomes_a_cookie_of_this_port(stranger: TestClient) -> None:
    assert stranger.get("/?token=wrong").status_code == 401
    response = stranger.get(f"/?token={TOKEN}")
    assert response.status_code == 200
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"clearformer-8137={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert stranger.get("/api/models").status_code == 200  # by the cookie
    stranger.cookies.clear()
    assert stranger.get("/api/models", headers={"Cookie": f"clearformer-9999={TOKEN}"}).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8137", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.com:8137", ""]
)
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    response = client.get("/api/models", headers={"Host": host})
    assert response.status_code == 403
    assert "host" in response.json()["error"]["message"]


def test_names_of_this_machine_are_accepted(client: TestClient) -> None:
    for host in ("127.0.0.1:8137", "localhost:8137", "[::1]:8137"):
        assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:80", "https://127.0.0.1:8137"])
def test_other_origins_are_refused(client: TestClient, origin: str) -> None:
    assert client.post("/v1/translate", json={"text": "Hi."}, headers={"Origin": origin}).status_code == 403
    assert client.post("/v1/translate", json={"text": "Hi."}, headers={"Origin": HERE}).status_code == 200


def test_every_answer_forbids_what_comes_from_elsewhere(client: TestClient, stranger: TestClient) -> None:
    for response in (client.get("/"), client.get("/api/models"), client.get("/nowhere"), stranger.get("/")):
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in response.headers


def test_large_requests_are_refused(client: TestClient) -> None:
    response = client.post("/v1/translate", content=b"x" * (MAX_BYTES + 1))
    assert response.status_code == 413

    def chunks() -> Any:
        for _ in range(12):
            yield b"x" * (MAX_BYTES // 10)

    response = client.post("/v1/translate", content=chunks())  # which states no length
    assert response.status_code == 413
    assert "more than" in response.json()["error"]["message"]


def test_uploads_may_be_larger(client: TestClient) -> None:
    body = {"model": "image_classifier", "image": "x" * (MAX_BYTES + 1)}
    assert client.post("/v1/classify", json=body).status_code == 400
    assert client.post("/v1/classify", content=b"x" * (Limits().upload + 1)).status_code == 413


def test_json_needs_no_header(client: TestClient) -> None:
    body = b'{"text": "Where is the station?"}'
    for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "application/json"}):
        response = client.post("/v1/translate", content=body, headers=headers)
        assert response.json()["translations"][0]["translation"] == "Où est la gare ?", headers
    assert client.post("/v1/translate", content=body, headers={"content-type": "text/html"}).status_code == 400


def test_files_outside_the_pages_are_not_served(client: TestClient) -> None:
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/..%2fstart.py"):
        assert client.get(path).status_code == 404
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")


def test_pages_name_nothing_outside(client: TestClient) -> None:
    from clearformer.studio.pages import STATIC

    files = [path for path in STATIC.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
    assert len(files) > 10
    for path in files:
        text = Path(path).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, path
        assert "https:" not in text, path
        assert "style=" not in text, path  # the policy would ignore it
