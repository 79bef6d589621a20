"""generate: text that continues or answers a prompt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from clearformer.handles.writer import Continuation, Writer
from clearformer.verbs.load import load_for


class Generator(Protocol):
    """What `generate` asks of a handle."""

    def writer(self, chat: bool = False) -> Writer: ...


def generate(
    model: str | Path, prompts: Sequence[str], *, chat: bool = False, device: str = "cpu", **settings: Any
) -> list[list[Continuation]]:
    """Continuations of each prompt by a language model; answers with `chat`, or from an encoder–decoder such as T5.

    The settings are those of `Writer.generate`.
    """
    generator: Generator = load_for("generate", model, device)
    return generator.writer(chat).generate(prompts, **settings)
