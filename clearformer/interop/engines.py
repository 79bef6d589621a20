"""The engines that can decode with a model, by the name that a user gives."""

from collections.abc import Callable
from typing import Any

from torch import nn

from clearformer.errors import ConfigError, suggest
from clearformer.generation.engine import Decoder

ENGINES = ("auto", "torch", "compiled", "ctranslate2")


def decoder_for(model: nn.Module, engine: str, announce: Callable[[str], None]) -> Any:
    """Return the decoder of a model: an object with the method `decode` of `Decoder`.

    `announce` receives a line before and after something is compiled or converted.
    """
    if engine == "ctranslate2":
        from clearformer.interop.ctranslate2 import CTranslate2Decoder
        from clearformer.interop.ctranslate2_gpt import CTranslate2Generator
        from clearformer.models.gpt import GPT

        return (CTranslate2Generator if isinstance(model, GPT) else CTranslate2Decoder)(model, announce)
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine `{engine}`", suggest(engine, ENGINES))
    return Decoder(model, engine, announce)  # type: ignore[arg-type]
