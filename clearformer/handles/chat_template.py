"""Render chat templates in a process of their own, where they have little time and memory (template_process.py)."""

import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from clearformer.errors import CheckpointError, MachineError

SECONDS = 10.0  # for one conversation; a template needs milliseconds
HINT = "omit --chat to continue the prompt instead"


class Renderer:
    """The process that renders templates: started when it is needed first, and again after one was ended."""

    def __init__(self) -> None:
        self.lock, self.owner = Lock(), -1
        self.process: subprocess.Popen[bytes] | None = None

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Return the rendered text. A template that fails, or takes too much time or memory, is an error."""
        with self.lock:
            line = self.ask(json.dumps({"template": template, "values": dict(values)}).encode() + b"\n")
        if line is None:
            raise CheckpointError(f"the chat template takes more than {SECONDS:g} s", HINT)
        try:
            answer = json.loads(line)
        except ValueError:  # the system ended the process, for want of memory
            answer = {"error": "it ends the process that renders it"}
        if "error" in answer:
            raise CheckpointError(f"the chat template failed: {' '.join(answer['error'].split())}", HINT)
        return str(answer["text"])

    def ask(self, request: bytes) -> bytes | None:
        """Send a request and return the answer, or None if it does not come in time."""
        process = self.started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            answer = b""
            while not answer.endswith(b"\n"):
                if not select.select([process.stdout], [], [], SECONDS)[0]:
                    self.stop()
                    return None
                part = os.read(process.stdout.fileno(), 2**16)
                if not part:
                    break
                answer += part
        except BrokenPipeError:
            answer = b""
        except BaseException:  # Ctrl-C: an answer that nobody reads must not be there for the next request
            self.stop()
            raise
        if not answer:
            self.stop()
        return answer

    def started(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.owner != os.getpid() or self.process.poll() is not None:
            if find_spec("jinja2") is None:
                raise MachineError("chat templates require the package jinja2", "pip install jinja2")
            script = Path(__file__).with_name("template_process.py")
            self.process = subprocess.Popen(
                [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            )  # fmt: skip
            self.owner = os.getpid()
        return self.process

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None and self.owner == os.getpid():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


RENDERER = Renderer()
atexit.register(RENDERER.stop)
