"""Clearformer: train, fine-tune, run and inspect Transformers on your own data.

    import clearformer
    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    clearformer.load("runs/mine").translate("A man is riding a bike.", beam=5)

Every command has a function here. Names are imported on first use, so that `import clearformer` is fast. No module may
have the name of one of these functions, because importing the module would replace the function.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clearformer.version import __version__

if TYPE_CHECKING:  # for type checkers and editors; at run time, _WHERE has the same names
    from clearformer.deprecated import evaluate_images as evaluate_images
    from clearformer.deprecated import evaluate_labels as evaluate_labels
    from clearformer.deprecated import evaluate_speech as evaluate_speech
    from clearformer.deprecated import evaluate_text as evaluate_text
    from clearformer.errors import ClearformerError as ClearformerError
    from clearformer.estimator import TextClassifier as TextClassifier
    from clearformer.recipe import Recipe as Recipe
    from clearformer.registry import register as register
    from clearformer.training.loggers import Logger as Logger
    from clearformer.verbs.bench import bench as bench
    from clearformer.verbs.card import card as card
    from clearformer.verbs.classify import classify as classify
    from clearformer.verbs.compare import compare as compare
    from clearformer.verbs.data import build_data as build_data
    from clearformer.verbs.demo import demo as demo
    from clearformer.verbs.doctor import doctor as doctor
    from clearformer.verbs.embed import embed as embed
    from clearformer.verbs.evaluate import evaluate as evaluate
    from clearformer.verbs.export import export_model as export_model
    from clearformer.verbs.fill import fill as fill
    from clearformer.verbs.finetune import finetune as finetune
    from clearformer.verbs.follows import follows as follows
    from clearformer.verbs.generate import generate as generate
    from clearformer.verbs.import_ import import_model as import_model
    from clearformer.verbs.inspect import inspect as inspect
    from clearformer.verbs.lens import view as view
    from clearformer.verbs.load import load as load
    from clearformer.verbs.merge import merge as merge
    from clearformer.verbs.merges import merges as merges
    from clearformer.verbs.neighbours import neighbours as neighbours
    from clearformer.verbs.notes import notes as notes
    from clearformer.verbs.plan import estimate as estimate
    from clearformer.verbs.plot import plot as plot
    from clearformer.verbs.repair import repair as repair
    from clearformer.verbs.score import score as score
    from clearformer.verbs.sweep import sweep as sweep
    from clearformer.verbs.train import plan as plan
    from clearformer.verbs.train import start_run as start_run
    from clearformer.verbs.train import train as train
    from clearformer.verbs.transcribe import transcribe as transcribe
    from clearformer.verbs.translate import translate as translate
    from clearformer.verbs.verify import verify as verify

_WHERE = {
    "ClearformerError": "clearformer.errors:ClearformerError",
    "Logger": "clearformer.training.loggers:Logger",
    "Recipe": "clearformer.recipe:Recipe",
    "TextClassifier": "clearformer.estimator:TextClassifier",
    "bench": "clearformer.verbs.bench:bench",
    "build_data": "clearformer.verbs.data:build_data",
    "card": "clearformer.verbs.card:card",
    "classify": "clearformer.verbs.classify:classify",
    "compare": "clearformer.verbs.compare:compare",
    "demo": "clearformer.verbs.demo:demo",
    "doctor": "clearformer.verbs.doctor:doctor",
    "embed": "clearformer.verbs.embed:embed",
    "estimate": "clearformer.verbs.plan:estimate",
    "evaluate": "clearformer.verbs.evaluate:evaluate",
    "export_model": "clearformer.verbs.export:export_model",
    "fill": "clearformer.verbs.fill:fill",
    "finetune": "clearformer.verbs.finetune:finetune",
    "follows": "clearformer.verbs.follows:follows",
    "generate": "clearformer.verbs.generate:generate",
    "import_model": "clearformer.verbs.import_:import_model",
    "inspect": "clearformer.verbs.inspect:inspect",
    "load": "clearformer.verbs.load:load",
    "merge": "clearformer.verbs.merge:merge",
    "merges": "clearformer.verbs.merges:merges",
    "neighbours": "clearformer.verbs.neighbours:neighbours",
    "notes": "clearformer.verbs.notes:notes",
    "plan": "clearformer.verbs.train:plan",
    "plot": "clearformer.verbs.plot:plot",
    "register": "clearformer.registry:register",
    "repair": "clearformer.verbs.repair:repair",
    "score": "clearformer.verbs.score:score",
    "start_run": "clearformer.verbs.train:start_run",
    "sweep": "clearformer.verbs.sweep:sweep",
    "train": "clearformer.verbs.train:train",
    "transcribe": "clearformer.verbs.transcribe:transcribe",
    "translate": "clearformer.verbs.translate:translate",
    "verify": "clearformer.verbs.verify:verify",
    "view": "clearformer.verbs.lens:view",
}
_DEPRECATED = ("evaluate_images", "evaluate_labels", "evaluate_speech", "evaluate_text")

__all__ = ["__version__", *_WHERE]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if not TYPE_CHECKING:  # a type checker reports a misspelt name only where it sees no __getattr__

    def __getattr__(name: str) -> Any:
        where = f"clearformer.deprecated:{name}" if name in _DEPRECATED else _WHERE.get(name)
        if where is None:
            raise AttributeError(f"module 'clearformer' has no attribute {name!r}")
        module, attribute = where.split(":")
        return getattr(import_module(module), attribute)
