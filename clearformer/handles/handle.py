"""The base class of all handles: a trained model ready for inference."""

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn


class Handle:
    """A trained model, as returned by `load`. `kind` describes it in messages; `verbs` are the supported commands."""

    kind: ClassVar[str]
    verbs: ClassVar[tuple[str, ...]]
    temperature: float = 1.0
    """What a classifier divides its logits by before the softmax; other than 1 after `evaluate --calibrate`."""

    def __init__(self, model: nn.Module, name: str = "model") -> None:
        self.model: Any = model.eval()
        self.name = name

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def __repr__(self) -> str:
        calibrated = "" if self.temperature == 1 else f", calibrated (temperature {self.temperature:.3g})"
        return f"<{type(self).__name__} {self.name}: {self.kind}{calibrated}>"


def renamed(old: str, new: str) -> Callable[..., Any]:
    """Return a deprecated alias `old`, kept for one more version: it warns, then calls the method `new`."""

    def call(self: Handle, *arguments: Any, **options: Any) -> Any:
        message = f"{type(self).__name__}.{old} is deprecated: use {type(self).__name__}.{new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, new)(*arguments, **options)

    return call
