"""The base of every handle: a trained model ready for use."""

from typing import Any, ClassVar

import torch
from torch import nn


class Handle:
    """What `load` gives. `kind` and `verbs` say what it is and what it can do, for messages."""

    kind: ClassVar[str]
    verbs: ClassVar[tuple[str, ...]]

    def __init__(self, model: nn.Module, name: str = "model") -> None:
        self.model: Any = model.eval()
        self.name = name

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.kind}>"
