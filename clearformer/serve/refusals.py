"""Errors in the shape of OpenAI's API, which its clients understand, with a hint beside it.

    {"error": {"message": "there is no model called `en-de`", "type": "invalid_request_error", "param": "model",
               "code": "model_not_found", "hint": "did you mean `en-fr`?"}}

`type` follows from the HTTP status. `code` names one reason, for programs; `param` is the field that it is about.
"""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

INVALID = "invalid_request_error"
TYPES = {401: "authentication_error", 403: "permission_error", 408: "timeout_error", 429: "rate_limit_error"}
TYPES |= {504: "timeout_error"}


class Refused(HTTPException):
    """A request that is not answered: the HTTP status, a sentence, a hint, and headers such as Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        hint: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.status, self.message, self.hint, self.code, self.param = status, message, hint, code, param

    @property
    def body(self) -> dict[str, Any]:
        return error_body(self.status, self.message, self.hint, self.code, self.param)


def error_body(
    status: int, message: str, hint: str | None = None, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """Return the JSON object of an error."""
    kind = TYPES.get(status, "server_error" if status >= 500 else INVALID)
    return {"error": {"message": message, "type": kind, "param": param, "code": code, "hint": hint}}


def later(seconds: float) -> dict[str, str]:
    """Return the header that says when to try again, in whole seconds."""
    return {"retry-after": str(max(1, round(seconds)))}
