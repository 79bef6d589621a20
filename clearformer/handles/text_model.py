"""The base of handles that read a text as a whole: classifiers, taggers and text encoders."""

from typing import Any

from torch import nn

from clearformer.handles.handle import Handle
from clearformer.text import Tokenizer


class TextModel(Handle):
    """A network and its tokenizer. `max_tokens` bounds how much of a text is read; the network's positions do, too."""

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, name: str = "model", max_tokens: int | None = None
    ) -> None:
        super().__init__(model, name)
        config: Any = model.config
        self.tokenizer = tokenizer
        self.max_tokens: int = min(max_tokens or config.max_length, config.max_length)
