"""Text classification, evaluated by accuracy, and text regression, evaluated by squared error.

LabelTask is the base class of this task and of the tagging task (tagging.py).
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.data.collate import TokenBatches
from clearformer.data.corpora import LabelCorpora
from clearformer.data.files.open import describe_columns
from clearformer.data.labels import (
    Changed,
    Labelled,
    LabelRows,
    LabelSource,
    label_value,
    named_columns,
    number_classes,
)
from clearformer.data.tags import Tagged, is_tagged
from clearformer.data.tally import Skipped, TooLong
from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.labels import class_metrics, confident_errors, evaluation, regression_metrics
from clearformer.handles.batching import read_rows
from clearformer.handles.classifier import Classifier
from clearformer.handles.text_encoder import TextEncoder
from clearformer.metric import ACCURACY, LOSS, MACRO_F1, Metric
from clearformer.objectives.classification import Classification
from clearformer.tables import Tables
from clearformer.tasks import LABELS, Given
from clearformer.tasks.auto.labels import plan_finetune_labels, plan_labels
from clearformer.tasks.class_task import ClassTask, deciding_first
from clearformer.tasks.task import Plan, Pretrained, Request, device_of, refuse_options
from clearformer.tasks.text_task import text_encoder
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.training.journal import console
from clearformer.wording import count

PEARSON = Metric("pearson", "Pearson correlation")
STORE_ORDER = ("test", "valid", "train")  # train is stored last: if it exists, all splits are complete


class RowBatches:
    """Labelled texts in batches of similar length, with at most `tokens` tokens each, including padding."""

    is_drawn = False

    def __init__(self, rows: LabelRows, tokens: int, seed: int, pad_id: int) -> None:
        self.rows, self.pad_id = rows, pad_id
        # TokenBatches adds one token to each length; these lengths already include all special tokens.
        self.batches = TokenBatches(np.stack([rows.tokens.lengths - 1] * 2, axis=1), tokens, seed)

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        return self.batches.steps(epoch, group)

    def batch(self, rows: np.ndarray, key: tuple[int, int] = (0, 0)) -> EncoderBatch:
        return self.rows.batch(rows, self.pad_id)

    def count(self, rows: np.ndarray) -> int:
        return self.rows.count(rows)


class LabelTask(ClassTask):
    flag = LABELS
    unit = "examples"
    form: ClassVar[type[LabelRows]]
    """The class that stores the rows."""
    columns: ClassVar[tuple[str, str]]
    """The keys of [data.train] for two columns: of the text or the words, and of the labels."""

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.training_file: list[Any] | None = None
        self.skipped = Skipped()
        self.splits: dict[str, RowBatches] = {}

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return (LOSS, PEARSON) if is_regression(recipe) else deciding_first((ACCURACY, MACRO_F1, LOSS), recipe)

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        for name, option in (("weights", ""), ("prior", " (--balance)")):
            if is_regression(recipe) and getattr(recipe.objective, name, None):
                raise ConfigError(
                    f"{where}: objective.{name} is for classes, but data.regression = true predicts values",
                    f"remove objective.{name}{option}, or set data.regression = false",
                )

    # --- zero configuration

    @classmethod
    def sources(cls, given: Given) -> dict[str, dict[str, Any]]:
        """Return the files and columns of each split. The columns default to well-known names."""
        paths = {split: Path(path) for split, path in given.splits.items()}
        by_word = is_tagged(paths["train"])
        columns = column_keys(("words", "labels") if by_word else ("text", "label"), given)
        has_number = any(not isinstance(column, str) for column in columns.values())
        named = {split: {} if has_number or by_word else named_columns(path) for split, path in paths.items()}
        for split, names in named.items():
            used = {**names, **columns}
            if used == columns or not LabelSource(path=paths[split], **used).suits(paths[split]):
                continue  # everything is chosen, or there is no such column
            console.print(describe_columns(paths[split], used.values()))
        return {split: {"path": path, **named[split], **columns} for split, path in paths.items()}

    @classmethod
    def plan(cls, request: Request) -> Plan:
        return plan_labels(request)

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        return plan_finetune_labels(request, start, old)

    # --- from files to a run folder

    def learn(self, base: Pretrained | None, survey: Any) -> None:
        train = self.read("train")
        if not train:
            raise DataError(
                "no examples are left to train on", "add examples, or lower data.held_out and data.held_out_test"
            )
        self.tokenizers = [learn_tokenizer(train, self.recipe.text) if base is None else base.tokenizer]
        self.classes = [] if is_regression(self.recipe) else sorted(set(labels_of(train)))
        if len(self.classes) == 1:
            raise DataError(
                f"all training texts have the same label, `{self.classes[0]}`",
                "check --label-column, or add texts with other labels",
            )

    def read(self, split: str) -> list[Any]:
        """Read the examples of a split. The training file is read once, and cached until all splits are stored."""
        data = self.recipe.data
        if self.training_file is None:
            self.skipped = Skipped()
            self.training_file = list(data.source("train").read(self.skipped))
        examples: list[Any] = data.read(split, self.recipe.train.seed, self.training_file)
        return examples

    def settle(self) -> Tables:
        model, vocab = self.recipe.model, self.tokenizer.vocab_size
        if self.recipe.origin is not None:  # a published model may have more embeddings than its tokenizer has tokens
            vocab = max(vocab, model.vocab)
        return self.recipe.with_model(base=model.base.changed(vocab=vocab), n_classes=len(self.classes or []) or 1)

    def store(self) -> None:
        data, max_length = self.recipe.data, self.recipe.model.max_length
        assert self.classes is not None
        for split in STORE_ORDER:
            if split == "test" and data.test is None and data.held_out_test == 0:
                continue
            examples = self.read(split)
            if not examples:
                raise DataError(f"the {split} split has no examples", f"add examples, or set data.{split}.path")
            labels = encode_labels(examples, self.classes, split)
            limit, changed = min(data.max_tokens or max_length, max_length), Changed()
            too_long: TooLong = getattr(data, "too_long", "cut") if split == "train" else "cut"
            rows = self.form.of(examples, labels, self.tokenizer, limit, too_long, changed)
            if not len(rows):
                raise DataError(
                    f"every training text has more than {count(limit, 'token')}, and data.too_long = {too_long}",
                    'raise data.max_tokens, or set data.too_long = "cut"',
                )
            rows.save(self.path(split))
            mean = round(rows.tokens.lengths.mean())
            console.print(f"{split}: {count(len(rows), 'text')}, {count(mean, 'token')} each on average")
            self.print_lines(changed.describe(limit, too_long))
        self.print_lines(self.skipped.describe())
        self.training_file = None
        self.print_balance()

    @staticmethod
    def print_lines(lines: Iterable[str]) -> None:
        """Print lines that may contain the text of users."""
        for line in lines:
            console.print(line, markup=False)

    # --- in training

    def split(self, name: str) -> RowBatches:
        if name not in self.splits:
            train = self.recipe.train
            rows = self.form.load(self.path(name))
            self.splits[name] = RowBatches(rows, train.tokens, train.seed, self.tokenizer.pad_id)
        return self.splits[name]

    def describe(self) -> str:
        target = count(len(self.classes), "class", "classes") if self.classes else "numeric labels"
        return f"{count(len(self.split('train').rows), 'training text')}, {target}"

    def stored_classes(self, split: str) -> np.ndarray:
        classes: np.ndarray = self.form.load(self.path(split)).classes
        return classes[classes != IGNORE]

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        outputs, labels = self.balanced_outputs(model, split)
        return class_metrics(outputs, labels, self.classes) if self.classes else regression_metrics(outputs, labels)

    # --- inference

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        """Wrap the base model of the classifier, without the classification head."""
        base: Any = model.network.base
        return text_encoder(base, model, unit)

    @classmethod
    def evaluate(
        cls, model: Pretrained, given: Given, errors: int = 0, calibrate: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Return the metrics of a classifier: those of `evaluation.labels.evaluation`, and errors if there are any.

        For a regression: loss (mean squared error), pearson and examples. The columns default to the training columns;
        if the file does not have them, to well-known names.
        """
        refuse_options(given, options)
        path, classes = Path(given.files), model.classes or []
        columns, data = column_keys(cls.columns, given), model.recipe.data
        if not columns and (data is None or not data.train.suits(path)):
            named = cls.sources(given)["train"]
            columns = {key: named.get(key) for key in cls.columns}
        source = columns | {"path": path}
        data = data or cls.data.parse({"train": source}, f"--{cls.flag.name}")
        examples = list(data.train.changed(**source).read())
        labels = torch.from_numpy(encode_labels(examples, classes, str(path)))
        outputs = cls.read_examples(model, examples)
        if not classes:
            return regression_metrics(outputs, labels) | cls.counts(examples)
        temperature = cls.calibrate(model) if calibrate else model.temperature
        metrics = evaluation(outputs, labels, classes, class_metrics, temperature) | cls.counts(examples)
        if errors:
            rows = cls.rows(examples)
            metrics["errors"] = confident_errors(outputs, labels, classes, errors, rows.__getitem__, temperature)
        return metrics

    @classmethod
    @abstractmethod
    def read_examples(cls, model: Pretrained, examples: Sequence[Any]) -> Tensor:
        """Return the outputs of the head for each text or word, (N, C) on the CPU."""

    @classmethod
    @abstractmethod
    def rows(cls, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the columns that identify each text or word in a list of errors."""

    @classmethod
    def counts(cls, examples: Sequence[Any]) -> dict[str, int]:
        """Return counts that are reported in addition to the number of labels."""
        return {}


def column_keys(keys: tuple[str, str], given: Given) -> dict[str, Any]:
    """Return the columns given by the user, under the given keys of [data.train]."""
    columns = zip(keys, (given.options.get("text_columns"), given.options.get("label_column")))
    return {key: column for key, column in columns if column is not None}


def is_regression(recipe: Tables) -> bool:
    return bool(getattr(recipe.data, "regression", False))


def max_tokens(model: Pretrained) -> int | None:
    """Return data.max_tokens of the recipe, or None if it is not set."""
    length: int | None = getattr(model.recipe.data, "max_tokens", None)
    return length


def labels_of(examples: Sequence[Labelled | Tagged]) -> list[str]:
    return [label for example in examples for label in example.labels]


def encode_labels(examples: Sequence[Labelled | Tagged], classes: Sequence[str], split: str) -> np.ndarray:
    """Encode the label of each text or word, (n,): as the index of its class or, without classes, as a number."""
    if classes:
        return number_classes(labels_of(examples), classes, split)
    return np.array([label_value(label) for label in labels_of(examples)], "float32")


def learn_tokenizer(examples: Sequence[Labelled | Tagged], config: TextConfig) -> Tokenizer:
    """Train a tokenizer on the training texts, or load the file given by text.file."""
    if config.file is not None:
        return Tokenizer.load(config.file)
    return train_tokenizer((text for example in examples for text in example.texts), config)


class ClassificationTask(LabelTask):
    data = LabelCorpora
    objective = Classification
    form = LabelRows
    columns = ("text", "label")

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        super().check(recipe, where)
        if getattr(recipe.model, "pooling", None) == "none":
            raise ConfigError(
                f'{where}: model.pooling = "none" is for labelled words, but objective.kind = "classification"',
                'set model.pooling = "mean", or objective.kind = "token-classification"',
            )

    def outputs(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        rows = self.split(split).rows
        outputs = read_rows(model, rows.tokens, rows.segments, self.tokenizer.pad_id, device_of(model))
        return outputs, torch.from_numpy(rows.classes)

    @classmethod
    def handle(cls, model: Pretrained) -> Classifier:
        data = model.recipe.data
        is_pair = None if data is None else isinstance(data.train.text, tuple)
        classes, length = model.classes or [], max_tokens(model)
        handle = Classifier(model.network, model.tokenizer, classes, model.name, length, is_pair)
        handle.temperature = model.temperature
        return handle

    @classmethod
    def read_examples(cls, model: Pretrained, examples: Sequence[Labelled]) -> Tensor:
        pairs = None if examples[0].pair is None else [str(example.pair) for example in examples]
        return cls.handle(model).logits([example.text for example in examples], pairs)

    @classmethod
    def rows(cls, examples: Sequence[Labelled]) -> list[dict[str, Any]]:
        return [{"text": text} | ({} if pair is None else {"pair": pair}) for text, pair, _ in examples]
