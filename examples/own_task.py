"""A custom task, registered from outside the package: classify the rows of a table.

    cd examples
    clearformer --plugin own_task train    --table iris.csv --out runs/iris
    clearformer --plugin own_task evaluate --table more.csv --model runs/iris
    clearformer --plugin own_task classify --model runs/iris "5.1,3.5,1.4,0.2"
    clearformer --plugin own_task compare  compare-tables.toml

A table is a CSV file with numbers, and the class in the last column. This file defines everything about this kind of
data: the flag, the table [data] of a recipe, the model, the objective, zero configuration, the batches, the metrics,
and the handle that `load` returns. Checkpoints, resuming, distributed training, early stopping and reports need no
code here.
"""

import csv
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer import register
from clearformer.checkpoint import load_tensors, save_tensors
from clearformer.config import Config
from clearformer.data.batch import Tensors
from clearformer.data.collate import in_groups
from clearformer.data.corpora import Corpora
from clearformer.data.labels import number_classes
from clearformer.data.sources import require_file
from clearformer.data.split import place
from clearformer.errors import DataError
from clearformer.evaluation.labels import class_metrics
from clearformer.handles.handle import Handle
from clearformer.metric import ACCURACY, LOSS, Metric
from clearformer.objectives.cross_entropy import Loss
from clearformer.tables import Tables
from clearformer.tasks import Flag, Given
from clearformer.tasks.task import Plan, Pretrained, Request, Task, device_of
from clearformer.training.config import rounds
from clearformer.training.journal import console
from clearformer.wording import count

# --- data: files to rows, rows to batches


class Row(NamedTuple):
    numbers: tuple[float, ...]
    label: str


class TableSource(Config):
    """[data.train], [data.valid], [data.test]"""

    path: Path = Field(description="CSV file of numbers, with the class in the last column")

    def read(self) -> Generator[Row]:
        require_file(self.path)
        with open(self.path, encoding="utf-8", newline="") as file:
            for line, cells in enumerate(csv.reader(file), 1):
                try:
                    yield Row(tuple(map(float, cells[:-1])), cells[-1].strip())
                except ValueError:
                    if line > 1:  # the first line may be a header
                        raise DataError(
                            f"{self.path}:{line}: a value is not a number", "only the last column may be text"
                        ) from None


class TableCorpora(Corpora):
    """[data] of a table."""

    train: TableSource
    valid: TableSource | None = None
    test: TableSource | None = None

    def read(self, split: str) -> list[Row]:
        """The rows of a split, from its file or held out from the training file."""
        if split != "train" and (source := self.source(split)) is not None:
            return list(source.read())
        start, end = self.edges(split)
        return [row for row in self.source("train").read() if start <= place(str(row.numbers)) < end]


@dataclass(frozen=True)
class RowBatch(Tensors):
    """numbers (B, D) float32, classes (B,) int64."""

    numbers: Tensor
    classes: Tensor
    n_tokens: int = -1

    def __post_init__(self) -> None:
        self._count(None)


class RowBatches:
    """Batches of `n_rows` rows, in an order that is a function of (seed, epoch)."""

    is_drawn = False

    def __init__(self, numbers: Tensor, classes: Tensor, n_rows: int, seed: int) -> None:
        self.numbers, self.classes, self.n_rows, self.seed = numbers, classes, min(n_rows, len(classes)), seed

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.classes))
        whole = len(order) // self.n_rows * self.n_rows
        return in_groups(list(order[:whole].reshape(-1, self.n_rows)), group)

    def batch(self, rows: np.ndarray, key: tuple[int, int]) -> RowBatch:
        return RowBatch(self.numbers[rows], self.classes[rows])

    def count(self, rows: np.ndarray) -> int:
        return len(rows)


# --- model and objective


class PerceptronConfig(Config):
    """[model] of kind "perceptron"."""

    kind: Literal["perceptron"] = "perceptron"
    preset: str | None = None
    n_features: int = Field(1, gt=0, description="number of columns; set from the data in training")
    n_classes: int = Field(2, gt=0, description="number of classes; set from the data in training")
    d_hidden: int = Field(32, gt=0)


class Perceptron(nn.Module):
    """logits = W₂ relu(W₁ norm(x)), where a batch norm brings the columns to the same scale."""

    Config = PerceptronConfig
    task = "table"

    def __init__(self, config: PerceptronConfig) -> None:
        super().__init__()
        self.config = config
        self.norm = nn.BatchNorm1d(config.n_features)
        self.up, self.down = nn.Linear(config.n_features, config.d_hidden), nn.Linear(config.d_hidden, config.n_classes)

    def forward(self, batch: RowBatch) -> Tensor:
        logits: Tensor = self.down(F.relu(self.up(self.norm(batch.numbers))))
        return logits


class RowClassConfig(Config):
    """[objective]"""

    kind: str = "table"


class RowClass:
    """− Σ log p(class | row)"""

    Config = RowClassConfig

    def __init__(self, config: RowClassConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: RowBatch) -> Loss:
        return Loss(F.cross_entropy(model(batch), batch.classes, reduction="sum"), batch.n_tokens)


# --- inference


class TableClassifier(Handle):
    """The result of `load`."""

    kind = "a classifier of table rows"
    verbs = ("classify", "evaluate")
    default_top, json_key, is_pair = 1, "rows", False

    def __init__(self, model: nn.Module, classes: Sequence[str], name: str = "model") -> None:
        super().__init__(model, name)
        self.classes = list(classes)

    @torch.no_grad()
    def logits(self, rows: Sequence[Sequence[float]]) -> Tensor:
        """Logits (N, C) on the CPU."""
        numbers = torch.tensor(rows, dtype=torch.float32, device=self.device)
        logits: Tensor = self.model(RowBatch(numbers, torch.zeros(len(rows), dtype=torch.long)))
        return logits.float().cpu()

    def predict(
        self, inputs: Sequence[str], pairs: None = None, top: int = 1, errors: Any = None
    ) -> list[dict[str, Any]]:
        """The output of the command `classify`; the inputs are rows as text, "5.1,3.5,1.4,0.2"."""
        probabilities = self.logits([[float(cell) for cell in text.split(",")] for text in inputs]).softmax(-1)
        ranked = [sorted(zip(row, self.classes), reverse=True) for row in probabilities.tolist()]
        named = [[{"label": label, "probability": p} for p, label in row] for row in ranked]
        return [{"text": text, **row[0], "top": row[:top]} for text, row in zip(inputs, named)]


# --- the task


class TableTask(Task):
    flag = Flag(
        "table", "FILE", "A CSV file of numbers; the last column is the class.", task="table", makes="a row classifier"
    )
    data = TableCorpora
    objective = RowClass
    unit = "rows"
    n_tokenizers = 0
    has_classes = True

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return ACCURACY, LOSS

    @classmethod
    def plan(cls, request: Request) -> Plan:
        """Zero configuration: 60 epochs, and more hidden units for more rows."""
        table: dict[str, Any] = {"data": request.data, "objective": {"kind": "table"}, "model": {"kind": "perceptron"}}
        n = len(request.recipe(table).data.read("train"))
        steps = max(100, 60 * n // 32)
        table["model"] = {"kind": request.model or "perceptron", "d_hidden": 32 if n < 10_000 else 128}
        table["optim"] = {"kind": "adamw", "lr": 3e-3}
        table["schedule"] = {"kind": "cosine", "warmup": request.steps(steps) // 10}
        table["train"] = {"tokens": 32, "steps": steps, **rounds(steps, 20), "patience": 5, "ema": 0.0}
        console.print(f"{count(n, 'row')}: a perceptron, {count(request.steps(steps), 'step')} of 32 rows")
        return Plan(request.recipe(table))

    def learn(self, base: Pretrained | None, survey: Any) -> None:
        self.rows = self.recipe.data.read("train")
        self.classes = sorted({row.label for row in self.rows}) if base is None else list(base.classes or [])
        self.n_features = len(self.rows[0].numbers)

    def load(self) -> None:
        super().load()
        self.n_features = int(load_tensors(self.path("train"))[0]["numbers"].size(1))

    def settle(self) -> Tables:
        return self.recipe.with_model(n_features=self.n_features, n_classes=len(self.classes or []))

    def store(self) -> None:
        has_test = self.recipe.data.test is not None or self.recipe.data.held_out_test > 0
        for split in ("test", "valid", "train") if has_test else ("valid", "train"):  # the training data is stored last
            rows = self.rows if split == "train" else self.recipe.data.read(split)
            if not rows:
                raise DataError(f"the {split} split has no rows", f"add rows, or set data.{split} to a file")
            classes = torch.from_numpy(number_classes([row.label for row in rows], self.classes or [], split))
            save_tensors(self.path(split), {"numbers": torch.tensor([row.numbers for row in rows]), "classes": classes})

    def split(self, name: str) -> RowBatches:
        tensors, _ = load_tensors(self.path(name))
        return RowBatches(tensors["numbers"], tensors["classes"], self.recipe.train.tokens, self.recipe.train.seed)

    def describe(self) -> str:
        return f"{count(len(self.split('train').classes), 'training row')} of {count(self.n_features, 'number')}"

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        rows = self.split(split)
        batch = RowBatch(rows.numbers, rows.classes).to(device_of(model))
        scores = class_metrics(model(batch).float().cpu(), rows.classes)
        return scores | {"rows": scores.pop("examples")}

    @classmethod
    def handle(cls, model: Pretrained) -> TableClassifier:
        return TableClassifier(model.network, model.classes or [], model.name)

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        rows = list(TableSource(path=Path(given.files)).read())
        handle = cls.handle(model)
        targets = number_classes([row.label for row in rows], handle.classes, str(given.files))
        scores = class_metrics(handle.logits([row.numbers for row in rows]), torch.from_numpy(targets))
        return scores | {"rows": scores.pop("examples")}


register("model", "perceptron", Perceptron)
register("task", "table", TableTask)
