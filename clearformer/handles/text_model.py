"""The base class of handles that encode a whole text: classifiers, taggers and text encoders."""

from typing import Any

from torch import nn

from clearformer.handles.handle import Handle
from clearformer.text import Tokenizer


class TextModel(Handle):
    """A network and its tokenizer. Texts are cut to `max_tokens`, or to the network's max length if that is smaller."""

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, name: str = "model", max_tokens: int | None = None
    ) -> None:
        super().__init__(model, name)
        config: Any = model.config
        self.tokenizer = tokenizer
        self.max_tokens: int = min(max_tokens or config.max_length, config.max_length)
