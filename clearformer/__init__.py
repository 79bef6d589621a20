"""Clearformer: train, fine-tune, run and inspect Transformers on your own data.

    import clearformer
    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    clearformer.load("runs/mine").translate(["A man is riding a bike."], beam=5)

Every command has a function here. Names are imported on first use, so that `import clearformer` is fast. No module may
have the name of one of these functions, because importing the module would replace the function.
"""

from importlib import import_module
from typing import Any

from clearformer.version import __version__

_WHERE = {
    "ClearformerError": "clearformer.errors:ClearformerError",
    "Recipe": "clearformer.recipe:Recipe",
    "bench": "clearformer.verbs.bench:bench",
    "card": "clearformer.verbs.card:card",
    "classify": "clearformer.verbs.classify:classify",
    "compare": "clearformer.verbs.compare:compare",
    "demo": "clearformer.verbs.demo:demo",
    "doctor": "clearformer.verbs.doctor:doctor",
    "embed": "clearformer.verbs.embed:embed",
    "evaluate": "clearformer.verbs.evaluate:evaluate",
    "export_model": "clearformer.verbs.export:export_model",
    "fill": "clearformer.verbs.fill:fill",
    "finetune": "clearformer.verbs.finetune:finetune",
    "generate": "clearformer.verbs.generate:generate",
    "import_model": "clearformer.verbs.import_:import_model",
    "inspect": "clearformer.verbs.inspect:inspect",
    "load": "clearformer.verbs.load:load",
    "merge": "clearformer.verbs.merge:merge",
    "neighbours": "clearformer.verbs.neighbours:neighbours",
    "plan": "clearformer.verbs.train:plan",
    "plot": "clearformer.verbs.plot:plot",
    "register": "clearformer.registry:register",
    "repair": "clearformer.verbs.repair:repair",
    "score": "clearformer.verbs.score:score",
    "sweep": "clearformer.verbs.sweep:sweep",
    "train": "clearformer.verbs.train:train",
    "transcribe": "clearformer.verbs.transcribe:transcribe",
    "translate": "clearformer.verbs.translate:translate",
}
_DEPRECATED = ("evaluate_images", "evaluate_labels", "evaluate_speech", "evaluate_text")

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    where = f"clearformer.deprecated:{name}" if name in _DEPRECATED else _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'clearformer' has no attribute {name!r}")
    module, attribute = where.split(":")
    return getattr(import_module(module), attribute)
