"""generate: continue or answer prompts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, overload

from clearformer.handles.writer import Continuation, Writer
from clearformer.verbs.load import load_for


class Generator(Protocol):
    """The interface that `generate` needs from a handle."""

    def writer(self, chat: bool = False) -> Writer: ...


@overload
def generate(
    model: str | Path,
    prompts: str,
    *,
    chat: bool = False,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    **settings: Any,
) -> list[Continuation]: ...
@overload
def generate(
    model: str | Path,
    prompts: Sequence[str],
    *,
    chat: bool = False,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    **settings: Any,
) -> list[list[Continuation]]: ...
def generate(
    model: str | Path,
    prompts: str | Sequence[str],
    *,
    chat: bool = False,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    **settings: Any,
) -> list[Continuation] | list[list[Continuation]]:
    """Return the continuations of a prompt, or a list of them for a list of prompts.

    With `chat`, or from an encoder-decoder such as T5, these are answers. `settings` are the keyword arguments of
    `Writer.generate`.
    """
    generator: Generator = load_for("generate", model, device, engine, precision)
    return generator.writer(chat).generate(prompts, **settings)
