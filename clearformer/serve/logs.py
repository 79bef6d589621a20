"""The log of a server: one JSON object per line on stderr, without the texts of users unless they are asked for.

{"time": "2026-05-01T12:00:00.123Z", "level": "info", "event": "request", "id": "…", "path": "/v1/translate", …}
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from threading import Lock
from typing import Any, TextIO


class Logs:
    """Writes lines. `has_texts` says whether requests are logged with their texts."""

    def __init__(self, stream: TextIO | None = None, has_texts: bool = False) -> None:
        self.stream, self.has_texts, self.lock = stream, has_texts, Lock()

    def write(self, level: str, event: str, **fields: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {name: value for name, value in fields.items() if value is not None}
        text = json.dumps({"time": now, "level": level, "event": event, **values}, ensure_ascii=False, default=str)
        with self.lock:
            stream = self.stream or sys.stderr
            try:
                stream.write(text.encode("utf-8", "replace").decode() + "\n")
                stream.flush()
            except (OSError, ValueError):  # nobody reads the log any more: requests are answered all the same
                pass

    def bug(self, error: BaseException, **fields: Any) -> None:
        """Write an unexpected error with its traceback."""
        self.write("error", "bug", error=repr(error), traceback="".join(traceback.format_exception(error)), **fields)

    def warn(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Write a warning of Python, in place of warnings.showwarning. It may quote the text of a user."""
        text = str(message) if self.has_texts else None
        self.write("warning", "warning", category=category.__name__, at=f"{filename}:{lineno}", message=text)


class SilentLogs(Logs):
    """Writes nothing but unexpected errors: for the studio, whose terminal has only its URL."""

    def write(self, level: str, event: str, **fields: Any) -> None:
        if level == "error":
            super().write(level, event, **fields)


class Forward(logging.Handler):
    """Sends what uvicorn logs to the log of the server."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(logging.WARNING)
        self.logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        detail = "".join(traceback.format_exception(error)) if error else None
        self.logs.write(record.levelname.lower(), "server", message=record.getMessage(), traceback=detail)
