"""The base class of all handles: a trained model ready for inference."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from clearformer.errors import CheckpointError
from clearformer.notebook import html_table
from clearformer.wording import count, listed

MOST_CLASSES = 8  # in a description; further classes are only counted


class Handle:
    """A trained model, as returned by `load`. `kind` describes it in messages; `verbs` are the supported commands.

    handle(inputs) calls the method named by `main`: a translator translates, a classifier predicts, and so on.
    """

    kind: ClassVar[str]
    verbs: ClassVar[tuple[str, ...]]
    main: ClassVar[str]
    temperature: float = 1.0
    """What a classifier divides its logits by before the softmax; other than 1 after `evaluate --calibrate`."""
    path: Path | None = None
    """The folder that the model was loaded from, if any."""
    lens: Callable[..., Any]
    """lens(text) looks inside the model at work on a text (docs/lens.md). `load` sets it."""

    def __init__(self, model: nn.Module, name: str = "model") -> None:
        self.model: Any = model.eval()
        self.name = name

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def require_numbers(self, values: Iterable[float]) -> None:
        """Raise an error if a result of the network is not a number: its weights are too large."""
        if any(map(isnan, values)):
            raise CheckpointError(
                f"{self.name} computes values that are not numbers", "its training diverged; use an earlier checkpoint"
            )

    def __call__(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Return the result for one input, or a list of results for a list of inputs."""
        return getattr(self, self.main)(inputs, *arguments, **options)

    def facts(self) -> dict[str, str]:
        """Describe the model: its architecture, sizes, vocabulary, classes, calibration, device and folder."""
        rows = {"architecture": describe_architecture(self.model), "parameters": f"{count_parameters(self.model):,}"}
        tokenizers = [getattr(self, f"{side}tokenizer", None) for side in ("", "source_", "target_")]
        sizes = [tokenizer.vocab_size for tokenizer in tokenizers if tokenizer is not None]
        rows["vocabulary"] = " and ".join(count(size, "token") for size in dict.fromkeys(sizes))
        if max_length := getattr(self, "max_tokens", getattr(self.model.config, "max_length", 0)):
            rows["max length"] = count(max_length, "token")
        if classes := getattr(self, "classes", ()):
            rows["classes"] = describe_classes(classes)
        if self.temperature != 1:
            rows["calibrated"] = f"temperature {self.temperature:.3g}"
        weight = next(self.model.parameters())
        rows["device"] = f"{weight.device}, {str(weight.dtype).removeprefix('torch.')}"
        rows["from"] = "" if self.path is None else str(self.path)
        rows["verbs"] = ", ".join(self.verbs)
        return {name: value for name, value in rows.items() if value}

    def __repr__(self) -> str:
        facts = self.facts()
        parts = [facts[name] for name in ("architecture", "classes") if name in facts]
        parts[1:1] = [count(count_parameters(self.model), "parameter")]
        parts += [f"vocabulary of {facts['vocabulary']}"] if "vocabulary" in facts else []
        parts += [f"calibrated ({facts['calibrated']})"] if "calibrated" in facts else []
        parts += [f"from {facts['from']}"] if "from" in facts else []
        return f"<{type(self).__name__} {self.name}: {self.kind}, {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        return html_table(f"{type(self).__name__} {self.name}: {self.kind}", self.facts())


def describe_architecture(model: nn.Module) -> str:
    """Describe a network by its configuration: "bert, 2 layers, width 128"."""
    config: Any = model.config
    config = getattr(config, "base", None) or config  # of a classifier
    kind = str(getattr(config, "preset", None) or getattr(config, "kind", type(model).__name__))
    sizes = [
        count(n, f"{part}layer")
        for part in ("", "encoder ", "decoder ")
        if (n := getattr(config, f"n_{part.replace(' ', '_')}layers", 0))
    ]
    if width := getattr(config, "d_model", 0):
        sizes.append(f"width {width}")
    return ", ".join([kind, *sizes])


def describe_classes(classes: Sequence[str]) -> str:
    return f"{count(len(classes), 'class', 'classes')}: {listed(classes, most=MOST_CLASSES)}"


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def renamed(old: str, new: str) -> Callable[..., Any]:
    """Return a deprecated alias `old`, kept for one more version: it warns, then calls the method `new`."""

    def call(self: Handle, *arguments: Any, **options: Any) -> Any:
        message = f"{type(self).__name__}.{old} is deprecated: use {type(self).__name__}.{new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, new)(*arguments, **options)

    return call
