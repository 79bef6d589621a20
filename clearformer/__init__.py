"""Clearformer: train, fine-tune, run and see through Transformers, on your own data.

    import clearformer
    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    clearformer.load("runs/mine").translate(["A man is riding a bike."], beam=5)

Every verb of the command line has its twin here. Names are imported when first used, so that `import clearformer`
itself costs nothing; no module bears the name of a function, or importing it would hide the function.
"""

from importlib import import_module
from typing import Any

from clearformer.version import __version__

_WHERE = {
    "ClearformerError": "clearformer.errors:ClearformerError",
    "Recipe": "clearformer.recipe:Recipe",
    "classify": "clearformer.verbs.reading:classify",
    "compare": "clearformer.comparison.contest:compare",
    "demo": "clearformer.showcase:demo",
    "doctor": "clearformer.diagnosis:examine",
    "embed": "clearformer.verbs.reading:embed",
    "evaluate": "clearformer.verbs.evaluation:evaluate",
    "evaluate_images": "clearformer.verbs.evaluation:evaluate_images",
    "evaluate_labels": "clearformer.verbs.evaluation:evaluate_labels",
    "evaluate_speech": "clearformer.verbs.evaluation:evaluate_speech",
    "evaluate_text": "clearformer.verbs.evaluation:evaluate_text",
    "export_model": "clearformer.exchange:export_model",
    "fill": "clearformer.verbs.generation:fill",
    "finetune": "clearformer.verbs.training:finetune",
    "generate": "clearformer.verbs.generation:generate",
    "import_model": "clearformer.exchange:import_model",
    "inspect": "clearformer.inspection:inspect",
    "load": "clearformer.loading.handles:load",
    "merge": "clearformer.exchange:merge",
    "plan": "clearformer.verbs.training:plan",
    "plot": "clearformer.figures:plot",
    "register": "clearformer.registry:register",
    "repair": "clearformer.verbs.generation:repair",
    "score": "clearformer.verbs.generation:score",
    "train": "clearformer.verbs.training:train",
    "transcribe": "clearformer.verbs.reading:transcribe",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, attribute = _WHERE[name].split(":")
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'clearformer' has no attribute {name!r}")
