"""A text classifier with the methods that scikit-learn knows.

    classifier = clearformer.TextClassifier(steps=200, seed=0).fit(texts, labels)
    classifier.predict(["a fine film"]), classifier.predict_proba(["a fine film"]), classifier.score(texts, labels)

`fit` trains as `clearformer train --labels` does, or, with a base model, as `clearformer finetune --labels`. The
classifier works in scikit-learn's pipelines, searches and cross-validation; scikit-learn itself is not needed.
"""

from collections.abc import Iterable
from inspect import signature
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, NamedTuple, Self
from weakref import finalize

import numpy as np

from clearformer.checkpoint import CALIBRATION, CLASSES, RunFolder
from clearformer.errors import ConfigError, DataError, suggest
from clearformer.handles.classifier import Classifier
from clearformer.handles.inputs import as_list, described, is_one
from clearformer.loading.open import located
from clearformer.notebook import html_table
from clearformer.recipe import Recipe
from clearformer.text.normalize import clean
from clearformer.training.journal import silenced
from clearformer.tuning.methods import Method
from clearformer.verbs.choices import Settings
from clearformer.verbs.finetune import finetune
from clearformer.verbs.load import load_as
from clearformer.verbs.train import train
from clearformer.wording import count

MODEL_FILES = ("recipe.toml", "model.safetensors", "tokenizer.json", CLASSES, CALIBRATION)
"""The files of a run folder that inference reads: TOML, safetensors and JSON, so that loading them runs no code."""


class TextClassifier:
    """A classifier of texts. The settings are chosen from the data, except those that are given.

    base                  a model to fine-tune by `method`: "full", "lora", "prefix" or "head"; None: train from scratch
    model                 the architecture or preset to train from scratch, such as "textcnn"
    steps, epochs         how long to train, as steps or as passes over the data
    lr, batch_size, seed  learning rate, tokens per step, and the seed of all random draws
    balance               whether rare classes are predicted as readily as frequent ones
    validation_fraction   the part of each class that selects the best checkpoint instead of being trained on
    settings              further settings, such as {"model.dropout": 0.1} or ["model.dropout=0.1"]
    out                   the run folder; None uses a temporary one
    verbose               whether to print the plan and show the progress of training

    `fit` sets classes_, handle_ (the Classifier that `load` returns), report_ (what `train` returns) and run_ (the run
    folder). A pickled classifier contains the files of its run folder.
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    def __init__(
        self,
        *,
        base: str | Path | None = None,
        method: Method = "full",
        model: str | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        balance: bool = False,
        validation_fraction: float = 0.1,
        settings: Settings = (),
        out: str | Path | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        # scikit-learn copies an estimator by its arguments, which must be stored unchanged: `fit` checks them.
        self.base, self.method, self.model = base, method, model
        self.steps, self.epochs, self.lr, self.batch_size = steps, epochs, lr, batch_size
        self.seed, self.balance = seed, balance
        self.validation_fraction, self.settings = validation_fraction, settings
        self.out, self.device, self.verbose = out, device, verbose

    # --- training and prediction

    def fit(self, X: Iterable[str], y: Iterable[Any]) -> Self:
        """Train on texts and their labels, which are strings, integers or booleans. Returns the classifier itself."""
        texts, labels = as_texts(X), as_labels(y)
        if len(texts) != len(labels):
            raise DataError(
                f"{count(len(texts), 'text')} and {count(len(labels), 'label')} cannot be paired",
                "give one label for each text",
            )
        classes = class_names(labels)
        names = [classes[label] for label in labels.tolist()]
        folder = self.temporary_folder() if self.out is None else Path(self.out)
        with silenced(not self.verbose):
            self.report_ = self.train(split_examples(texts, names, self.validation_fraction, self.seed), folder)
        self.classes_ = np.unique(labels)
        self.open(folder)
        return self

    def train(self, examples: "Examples", folder: Path) -> dict[str, Any]:
        """Train in the run folder, and return the report."""
        short = ("steps", "epochs", "lr", "batch_size", "seed", "balance", "settings", "device")
        options = {name: getattr(self, name) for name in short}
        options |= {"labels": examples.train, "valid": examples.valid, "text_columns": "text", "label_column": "label"}
        if self.base is None:
            return train(model=self.model, out=folder, **options)
        if self.model is not None:
            raise ConfigError("`base` and `model` cannot be combined", "omit `model`: the base has an architecture")
        return finetune(self.base, method=self.method, out=folder, **options)

    def open(self, folder: Path) -> None:
        """Load the model of a run folder."""
        self.handle_, self.run_ = load_as(Classifier, folder, self.device), folder

    def temporary_folder(self) -> Path:
        """Return a new run folder, which is removed together with the classifier."""
        folder = mkdtemp(prefix="clearformer-")
        finalize(self, rmtree, folder, ignore_errors=True)
        return Path(folder) / "text-classifier"

    def predict_proba(self, X: Iterable[str]) -> np.ndarray:
        """Return the probability of each class for each text, (N, C), in the order of `classes_`."""
        handle, texts = self.fitted(), as_texts(X)
        if not texts:
            return np.empty((0, len(self.classes_)))
        probabilities = (handle.logits(texts).double() / handle.temperature).softmax(-1).numpy()  # (N, C)
        places = {name: i for i, name in enumerate(handle.classes)}
        return np.asarray(probabilities[:, [places[class_name(label)] for label in self.classes_.tolist()]])

    def predict(self, X: Iterable[str]) -> np.ndarray:
        """Return the most probable class of each text, (N,)."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def score(self, X: Iterable[str], y: Iterable[Any]) -> float:
        """Return the accuracy: the fraction of the texts whose most probable class is their label."""
        return float((self.predict(X) == as_labels(y)).mean())

    def fitted(self) -> Classifier:
        if not self.__sklearn_is_fitted__():
            raise ConfigError("the classifier is not fitted yet", "call fit(texts, labels) first")
        return self.handle_

    # --- what scikit-learn asks for

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor. Returns the classifier itself."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ConfigError(f"TextClassifier has no parameter `{name}`", suggest(name, known))
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "handle_")

    def __sklearn_tags__(self) -> Any:
        """Describe the classifier to scikit-learn, which calls this method itself."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(one_d_array=True, two_d_array=False, string=True)
        target, classifier = TargetTags(required=True), ClassifierTags()
        return Tags("classifier", target, classifier_tags=classifier, input_tags=inputs)

    # --- display and copies

    def __repr__(self) -> str:
        defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name]}
        arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"{type(self).__name__}({arguments})"

    def _repr_html_(self) -> str:
        if self.__sklearn_is_fitted__():
            return html_table(repr(self), {"fitted": self.handle_.kind, **self.handle_.facts()})
        return html_table(repr(self), {name: repr(value) for name, value in self.get_params().items()})

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"params": self.get_params()}
        if self.__sklearn_is_fitted__():
            files = {name: self.run_ / name for name in MODEL_FILES}
            state["files"] = {name: path.read_bytes() for name, path in files.items() if path.exists()}
            state["files"]["recipe.toml"] = portable_recipe(self.run_)
            state |= {"classes": self.classes_, "report": self.report_}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if "files" in state:
            folder = self.temporary_folder()
            folder.mkdir()
            for name in MODEL_FILES:
                if name in state["files"]:
                    (folder / name).write_bytes(state["files"][name])
            self.classes_, self.report_ = state["classes"], state["report"]
            self.open(folder)


class Examples(NamedTuple):
    """The rows of the training and the validation data."""

    train: list[dict[str, str]]
    valid: list[dict[str, str]]


def split_examples(texts: list[str], labels: list[str], fraction: float, seed: int) -> Examples:
    """Return the examples with the given fraction of each class in the validation data."""
    is_valid = held_out(labels, fraction, seed)
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels)]
    return Examples(*([rows[i] for i in np.flatnonzero(is_valid == part)] for part in (False, True)))


def held_out(labels: list[str], fraction: float, seed: int) -> np.ndarray:
    """Choose the validation examples at random, (N,): the fraction of each class, rounded, and at least one in all.

    Each class keeps an example to train on.
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"validation_fraction = {fraction} is not between 0 and 1", "for example 0.1")
    rng, values = np.random.default_rng(seed), np.array(labels)
    chosen, orders = np.zeros(len(values), bool), []
    for label in dict.fromkeys(labels):
        orders.append(rng.permutation(np.flatnonzero(values == label)))
        chosen[orders[-1][: min(round(fraction * len(orders[-1])), len(orders[-1]) - 1)]] = True
    if not chosen.any():
        largest = max(orders, key=len)
        if len(largest) == 1:
            raise DataError(
                "each class has only one text, which leaves none for validation", "add a second text of some class"
            )
        chosen[largest[0]] = True
    return chosen


def as_texts(X: Any) -> list[str]:
    """Return the texts of a list, array or column. Anything else is an error."""
    if is_one(X):
        raise DataError(f"expected a list of texts, not {described(X)}", "put the text in a list: [text]")
    if getattr(X, "ndim", 1) != 1:
        raise DataError(
            f"expected a list of texts, not an array of shape {tuple(X.shape)}",
            "give one column, such as X[:, 0] or df['text']",
        )
    return as_list(X, is_single=False, types=(str,), name="X")


def as_labels(y: Any) -> np.ndarray:
    labels = np.asarray(y if hasattr(y, "__array__") else list(y))
    if labels.ndim != 1:
        raise DataError(f"expected a list of labels, not an array of shape {labels.shape}", "give one label per text")
    return labels


def class_name(label: object) -> str:
    """Return the name of a label in the files of a run."""
    return clean(str(label))


def class_names(labels: np.ndarray) -> dict[Any, str]:
    """Return the name of each distinct label. Two labels with one name, and a label without one, are errors."""
    names = {label: class_name(label) for label in labels.tolist()}
    for label, name in names.items():
        if not name or label != label:
            raise DataError(f"the label {label!r} is empty", "remove the texts without a label")
        twins = [other for other, same in names.items() if same == name]
        if len(twins) > 1:
            raise DataError(f"the labels {twins[0]!r} and {twins[1]!r} have the same name", "rename one of them")
    if len(names) < 2:
        raise DataError(
            f"the labels have {count(len(names), 'class', 'classes')}, but at least two are needed",
            "add texts of another class",
        )
    return names


def portable_recipe(run: Path) -> bytes:
    """Return recipe.toml with an absolute path to the base model, so that the folder can be copied anywhere."""
    recipe = Recipe.read(RunFolder(run).recipe)
    if recipe.tuning is not None:
        recipe = recipe.with_tables(tuning=located(recipe.tuning, run))
    return recipe.dump().encode()
