"""Who may ask a server: programs that know its key, and pages that it served.

    Host            on this machine alone, must name it: else another site could point its name here (DNS rebinding)
    Origin          if given, must be this server: else the page of another site could post a request
    key             in `Authorization: Bearer KEY`; or in the URL of a page, and then in a cookie. The token of the
                    studio is such a key, random and for one session
    size, time      of the body: limits.py

Every response has a Content-Security-Policy under which a page can load nothing from elsewhere.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from clearformer.serve.limits import Limits
from clearformer.serve.refusals import Refused
from clearformer.wording import count

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN_PATHS = ("/health", "/ready")
UPLOADS = ("multipart/form-data", "image/", "audio/", "application/octet-stream")
UPLOAD_PATHS = ("/v1/classify", "/api/files/")  # the starts of paths: images in JSON, and bodies that are files
FORM = b"application/x-www-form-urlencoded"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; img-src 'self' data:; media-src 'self' blob:",  # images in figures; sound files a user chose
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware that checks every request before the application sees it.

    Without keys, none is asked for. `hosts` None accepts every name of this machine, which a key makes safe.
    """

    def __init__(
        self,
        app: Any,
        keys: Sequence[str] = (),
        hosts: tuple[str, ...] | None = LOOPBACK,
        limits: Limits | None = None,
    ) -> None:
        self.app, self.keys, self.hosts, self.limits = app, tuple(keys), hosts, limits or Limits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there is no other protocol here
            await send({"type": "websocket.close", "code": 1008})
            return
        more: list[tuple[bytes, bytes]] = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        is_started = False

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                message["headers"] = [*message.get("headers", []), *more]
            await send(message)

        try:
            more += self.check(scope)
            most = self.most_bytes(scope)
            read_as_json(scope)
            await self.app(scope, limited(receive, most, self.limits), send_guarded)
        except Refused as refused:
            if is_started:
                raise
            await refuse(refused, send_guarded)

    def check(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Raise Refused, or return headers to add: the cookie, if the key came in the URL."""
        headers = read_headers(scope)
        port = scope["server"][1] if scope.get("server") else None
        self.check_names(headers, port)
        length, most = headers.get("content-length", "0"), self.most_bytes(scope)
        if not (length.isascii() and length.isdecimal()) or int(length[:20]) > most:
            raise too_large(most)
        if not self.keys or scope["path"] in OPEN_PATHS:
            return []
        cookie = f"clearformer-{port}"  # browsers send the cookies of one port to all ports of a host
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_key(key.strip()):
            return []
        if self.is_key(read_cookie(headers.get("cookie", ""), cookie)):
            return []
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["method"] == "GET" and self.is_key(given):
            return [(b"set-cookie", f"{cookie}={given}; Path=/; HttpOnly; SameSite=Strict".encode())]
        hint = "send the header `Authorization: Bearer KEY`, or open the URL that was printed when the server started"
        raise Refused(401, "this server needs its key", hint, "invalid_api_key", headers={"www-authenticate": "Bearer"})

    def check_names(self, headers: dict[str, str], port: int | None) -> None:
        """Raise Refused for the name of another machine, or for a page of another site."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.hosts is None:
            allowed = {host}
        else:
            allowed = {f"{name}:{port}" for name in self.hosts} | (set(self.hosts) if port == 80 else set())
        if host not in allowed:
            raise Refused(403, f"this server does not answer for the host `{host}`", "use 127.0.0.1", "host")
        schemes = ("http",) if self.hosts is not None else ("http", "https")  # a proxy may add https
        if origin is not None and origin not in {f"{scheme}://{name}" for scheme in schemes for name in allowed}:
            raise Refused(403, f"pages of `{origin}` may not use this server", "open its own page", "origin")

    def is_key(self, text: str) -> bool:
        """Whether the text is a key; the time this takes says nothing about the keys."""
        matches = [hmac.compare_digest(text.encode("utf-8", "replace"), key.encode()) for key in self.keys]
        return any(matches)

    def most_bytes(self, scope: Scope) -> int:
        kind = read_headers(scope).get("content-type", "").lower()
        is_upload = kind.startswith(UPLOADS) or scope["path"].startswith(UPLOAD_PATHS)
        return self.limits.upload if is_upload else self.limits.body


def read_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def read_as_json(scope: Scope) -> None:
    """Let `curl -d` send JSON without a header: a body of no type, or of curl's default type, is read as JSON.

    Pages of other sites could send these types, too, but their Origin is refused.
    """
    kinds = {value.split(b";")[0].strip().lower() for name, value in scope["headers"] if name == b"content-type"}
    if scope["path"].startswith("/v1/") and not kinds - {FORM}:
        others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


def read_cookie(header: str, name: str) -> str:
    try:
        cookies: SimpleCookie = SimpleCookie(header)
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


def limited(receive: Receive, most: int, limits: Limits) -> Receive:
    """Return `receive` with limits on the size of the body, also of one that does not state its length, and its time.

    The time runs until the body is complete. What is received afterwards is that the client has gone.
    """
    size, is_complete, deadline = 0, False, asyncio.get_running_loop().time() + limits.body_seconds

    async def receive_limited() -> MutableMapping[str, Any]:
        nonlocal size, is_complete
        if is_complete:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            sentence = f"the body did not arrive within {limits.body_seconds:g} s"
            raise Refused(408, sentence, "send it at once", "timeout", headers={"connection": "close"}) from None
        size += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if size > most:
            raise too_large(most)
        return message

    return receive_limited


def too_large(most: int) -> Refused:
    headers = {"connection": "close"}  # the rest of the body is not read
    return Refused(
        413, f"the request has more than {count(most, 'byte')}", "send less at a time", "size", None, headers
    )


async def refuse(refused: Refused, send: Send) -> None:
    body = json.dumps(refused.body).encode()
    given = {"content-type": "application/json", "content-length": str(len(body)), **(refused.headers or {})}
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
