"""Clearformer: train, fine-tune, run and see through Transformers, on your own data.

    import clearformer
    clearformer.load("runs/m30k").translate(["A man is riding a bike."], beam=5)

Names are imported when first used, so that `import clearformer` itself costs nothing.
"""

from importlib import import_module
from typing import Any

from clearformer.version import __version__

_WHERE = {
    "load": "clearformer.load",
    "train": "clearformer.launch",
    "finetune": "clearformer.launch",
    "Recipe": "clearformer.recipe",
    "inspect": "clearformer.inspect",
    "evaluate": "clearformer.evaluation.evaluate",
    "doctor": "clearformer.doctor",
    "register": "clearformer.registry",
    "ClearformerError": "clearformer.errors",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'clearformer' has no attribute {name!r}")
