"""What every handle of this room has: a network that reads, its tokenizer, and how much it reads of a text."""

from typing import Any

import torch
from torch import nn

from clearformer.text import Tokenizer


class Reader:
    def __init__(self, model: nn.Module, tokenizer: Tokenizer, name: str = "model", max_tokens: int | None = None):
        self.model: Any = model
        self.model.eval()
        self.tokenizer, self.name = tokenizer, name
        config: Any = model.config
        self.max_tokens: int = min(max_tokens or config.max_length, config.max_length)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device
