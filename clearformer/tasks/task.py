"""The base class of all tasks: the methods that every task must define, and the code common to all tasks.

Task.plan(request)              a recipe chosen from the data
task = Task(recipe, run)
task.learn(base, survey)        determine the vocabulary and the classes; task.load() reads them from the run folder
task.settle()                   the final recipe, with the sizes that depend on the vocabulary and the classes
task.save(); task.store()       write the vocabulary, the classes and the examples to the run folder
task.steps(world)               batches for the training loop
task.validation(device)         the function (model, step) -> validation metrics
task.test(model)                test metrics of the best checkpoint, at the end
Task.handle(model)              the model wrapped for inference
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from clearformer.checkpoint import CALIBRATION, CLASSES, RunFolder, read_class_file, write_json, write_text
from clearformer.data.corpora import Corpora
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.metric import Metric
from clearformer.objectives import Objective
from clearformer.tables import Tables, override
from clearformer.tasks import Flag, Given, objective_named
from clearformer.text import Tokenizer
from clearformer.training.compiling import NumberOfShapes
from clearformer.training.distributed import World
from clearformer.training.feed import Split, Steps, WholeEpochs
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast
from clearformer.training.recompute import in_chunks
from clearformer.tuning.methods import Method
from clearformer.wording import count

TOKENIZER_FILES = ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json")


@dataclass(frozen=True)
class Request:
    """The input of zero configuration. The user's settings take precedence over its choices."""

    sources: dict[str, dict[str, Any]]
    """The files of each split, in the form of the [data] table."""
    model: str | None
    settings: Sequence[str]
    device: str
    parse: Callable[[Mapping[str, Any], str], Tables]
    method: Method = "full"
    exportable: bool = False
    """Whether Hugging Face's transformers must have a class that computes the same function."""

    def recipe(self, table: Mapping[str, Any]) -> Tables:
        """Apply the settings and validate the tables."""
        return self.parse(self.override(table), "--set")

    def override(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return override(table, self.settings)

    def steps(self, chosen: int) -> int:
        """Return train.steps from the settings, or `chosen` if it is not set. The warm-up is computed from it."""
        return int(self.override({"train": {"steps": chosen}})["train"]["steps"])

    def in_epochs(self, chosen: int, size: float, tokens: int, accumulation: int = 1) -> int:
        """Estimate the steps of train.epochs, whose epochs have `size` tokens or images; `chosen` if it is not set."""
        train = self.override({"train": {"tokens": tokens, "accumulation": accumulation}})["train"]
        if train.get("epochs") is None:
            return chosen
        return max(1, round(train["epochs"] * size / (train["tokens"] * train["accumulation"])))

    @property
    def data(self) -> dict[str, Any]:
        """The [data] table of a new recipe: a copy of `sources`."""
        return {split: dict(source) for split, source in self.sources.items()}


@dataclass(frozen=True)
class Pretrained:
    """A trained model loaded from a run folder or a Hugging Face folder, before `handle` wraps it for inference."""

    name: str
    path: Path
    recipe: Tables
    """For a Hugging Face folder, the recipe that `import` would write: [origin], [model] and, for images, [image]."""
    network: nn.Module
    tokenizers: list[Tokenizer]
    """Two tokenizers for a translator (source and target), none for images, otherwise one."""
    template: str | None = None
    """The chat template, if the model was trained for conversations."""
    classes: list[str] | None = None
    """The classes of a classifier in the order of its logits; empty for a regression."""
    temperature: float = 1.0
    """What a classifier divides its logits by before the softmax; 1 unless the run is calibrated."""

    @property
    def config(self) -> Any:
        return self.recipe.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[-1]

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device


class Plan(NamedTuple):
    """The chosen recipe, and the data statistics behind the choice, which need not be computed again."""

    recipe: Tables
    survey: Any = None


class Task(ABC):
    """A task in one run, with its recipe and run folder. The class methods do not need a run."""

    flag: ClassVar[Flag]
    data: ClassVar[type[Corpora]]
    objective: ClassVar[type[Any]]
    unit: ClassVar[str] = "tokens"
    """The unit of the mean loss and of the speed: tokens, examples or images."""
    batch_unit: ClassVar[str] = "tokens"
    """The unit of train.tokens, the size of a micro-batch: tokens (padding included), frames or images."""
    shapes: NumberOfShapes = "many"
    """How many shapes the training batches have. Steps on one shape or a few are recorded as CUDA graphs."""
    n_tokenizers: ClassVar[int] = 1
    """The number of tokenizers: 2 for source and target, 0 for data without text."""
    has_classes: ClassVar[bool] = False
    """Whether the data has classes, which are saved with the run."""
    predicts_classes: ClassVar[bool] = False

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        self.recipe, self.run = recipe, run
        self.tokenizers: list[Tokenizer] = []
        self.classes: list[str] | None = None

    # --- properties

    @classmethod
    @abstractmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        """Return the validation metrics. The first selects the best checkpoint, unless train.metric is set."""

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        """Refuse a recipe whose tables contradict one another. Each single table has already been validated."""
        return

    @classmethod
    def deciding_metric(cls, recipe: Tables) -> Metric:
        """Return the metric that selects the best checkpoint."""
        metrics = {metric.name: metric for metric in cls.metrics(recipe)}
        name = recipe.train.metric or next(iter(metrics))
        if name not in metrics:
            raise ConfigError(f"train.metric = `{name}` is not a metric of this task", suggest(name, metrics))
        return metrics[name]

    # --- zero configuration

    @classmethod
    def sources(cls, given: Given) -> dict[str, dict[str, Any]]:
        """Return the files of each split, in the form of the [data] table."""
        return {split: {"path": Path(path), **given.options} for split, path in given.splits.items()}

    @classmethod
    def plan(cls, request: Request) -> Plan:
        """Choose a recipe from the data."""
        raise ConfigError(
            f"zero configuration does not support --{cls.flag.name}",
            "write a recipe, and train it with `clearformer train RECIPE.toml`",
        )

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        """Choose a recipe to fine-tune the model in the folder `start`, which was trained with the recipe `old`."""
        flag = cls.flag
        raise ConfigError(
            f"fine-tuning on --{flag.name} is not supported",
            f"train a model from scratch with `clearformer train --{flag.name} {flag.example}`",
        )

    # --- from files to a run folder

    @abstractmethod
    def learn(self, base: Pretrained | None, survey: Any) -> None:
        """Set `tokenizers` and `classes` from the training data, or take them from the base model."""

    @abstractmethod
    def settle(self) -> Tables:
        """Return the final recipe, with the sizes that depend on the vocabulary and the classes."""

    @abstractmethod
    def store(self) -> None:
        """Write the examples of all splits to the run folder. `learn` must be called first.

        train.safetensors is written last: if it exists, all splits are complete.
        """

    def save(self) -> None:
        """Write the vocabulary and the classes to the run folder."""
        if self.tokenizers:
            save_tokenizers(self.run, self.tokenizers[0], self.tokenizers[-1])
        if self.classes is not None:
            write_json(self.run.path / CLASSES, self.classes)

    def load(self) -> None:
        """Read the vocabulary and the classes from the run folder."""
        self.tokenizers = load_tokenizers(self.run, self.n_tokenizers)
        if self.has_classes:
            self.classes = read_class_file(self.run.path / CLASSES)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def facts(self) -> dict[str, Any]:
        """Metadata saved with the weights. On loading, the vocabulary and the classes are checked against it."""
        facts: dict[str, Any] = {}
        if self.tokenizers:
            facts["tokenizers"] = [tokenizer.fingerprint() for tokenizer in self.tokenizers]
        return facts if self.classes is None else {**facts, "classes": self.classes}

    def path(self, split: str) -> Path:
        """Return the path of the file that holds a split."""
        return self.run.data / f"{split}.safetensors"

    # --- in training

    @abstractmethod
    def split(self, name: str) -> Split:
        """Return the examples of a split, divided into micro-batches."""

    @abstractmethod
    def describe(self) -> str:
        """Summarise the training data: "28,873 training pairs, vocabulary 8,000"."""

    @abstractmethod
    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Compute the metrics on a split, and further entries for the report."""

    def sample(self, model: nn.Module, step: int) -> str | None:
        """Return an example of the model's output, to be printed at each validation; None prints nothing."""
        return None

    def complete(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights to save as the best in place of their own values, if the validation adjusts some."""
        return {}

    def build_objective(self) -> Objective:
        """Construct the objective from [objective] and from the tables that its attribute `tables` lists."""
        kind = objective_named(self.recipe.objective.kind)
        tables = (getattr(self.recipe, name) for name in getattr(kind, "tables", ()))
        objective: Objective = kind(self.objective_table(), *tables)
        return in_chunks(objective, self.recipe.train.recompute)

    def objective_table(self) -> Any:
        """Return the table [objective], with any values that depend on the training data."""
        return self.recipe.objective

    def steps(self, world: World) -> Steps:
        """Return the batches of a run that was started in this world. The number of ranks now does not matter."""
        train = self.recipe.train
        if train.per_step == "epoch":
            return WholeEpochs(self.split("train"))
        return Steps(self.split("train"), train.accumulation * world.size)

    def validation(self, device: torch.device, is_first: bool = True) -> Validate:
        """Return a function that computes the metrics on the validation split, uncompiled, and prints a sample.

        The first rank also keeps the sample in the run folder.
        """
        metrics = self.metrics(self.recipe)

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, self.recipe.train.precision):
                values, sample = self.score(model, "valid"), self.sample(model, step)
            if sample is not None:
                console.print(sample, style="dim", markup=False)
                if is_first:
                    with self.run.samples.open("a", encoding="utf-8") as file:
                        file.write(
                            json.dumps({"step": step, "text": dedent(sample).strip()}, ensure_ascii=False) + "\n"
                        )
            return {metric.name: values[metric.name] for metric in metrics}

        return validate

    @property
    def has_test(self) -> bool:
        """Whether there is a test split."""
        return self.path("test").exists()

    @torch.no_grad()
    def test(self, model: Pretrained) -> dict[str, Any]:
        """Compute and print the metrics of the best checkpoint on the test split."""
        values = self.score(model.network.eval(), "test")
        summary = ", ".join(metric.format(values[metric.name]) for metric in self.metrics(self.recipe))
        units = [unit for unit in (self.unit, *UNITS) if unit in values]
        size = f" on {count(values[units[0]], units[0].removesuffix('s'), units[0])}" if units else ""
        console.print(f"test: {summary}{size}")
        return values

    # --- inference

    @classmethod
    @abstractmethod
    def handle(cls, model: Pretrained) -> Handle:
        """Wrap the model for inference."""

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> Handle:
        """Wrap the model as an encoder. If `unit` is true, vectors have length 1; if None, the model's files decide."""
        raise CheckpointError(
            f"{model.name} cannot compute embeddings: its architecture is {model.config.kind}",
            "choose a BERT, a GPT, a classifier or an image model",
        )

    @classmethod
    @abstractmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Compute the metrics of the model on other files."""


UNITS = ("sentences", "words", "tokens", "examples", "images")  # counts in a report, in the order of preference


def refuse_options(given: Given, options: Mapping[str, Any]) -> None:
    """Refuse options of `evaluate` that do not apply to this type of data."""
    for name in options:
        written = f"--{name.replace('_', '-')}"
        raise ConfigError(f"{written} cannot be used with --{given.flag.name}", f"remove {written}")


def mean_loss(objective: Any, model: nn.Module, batches: Iterable[Any], device: torch.device) -> float:
    """Compute the mean loss over batches: the sum of their summed losses, divided by the sum of their counts."""
    total, n_terms = 0.0, 0
    for batch in batches:
        loss, n = objective(model, batch.to(device))
        total, n_terms = total + float(loss), n_terms + n
    return total / n_terms


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def vocab_keys(n_tokenizers: int) -> tuple[str, ...]:
    """Return the keys of [model] that hold the vocabulary sizes."""
    return ("source_vocab", "target_vocab") if n_tokenizers == 2 else ("vocab",)[:n_tokenizers]


def save_tokenizers(run: RunFolder, source: Tokenizer, target: Tokenizer) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    if source.fingerprint() == target.fingerprint():
        write_text(run.path / "tokenizer.json", target.to_json())
    else:
        write_text(run.path / "source.tokenizer.json", source.to_json())
        write_text(run.path / "target.tokenizer.json", target.to_json())


def load_tokenizers(run: RunFolder, n: int) -> list[Tokenizer]:
    """Load the tokenizers of a run folder: none, one, or two for source and target, which may be the same."""
    if n == 0:
        return []
    shared = run.path / "tokenizer.json"
    if shared.exists():
        return [Tokenizer.load(shared)] * n
    return [Tokenizer.load(run.path / f"{side}.tokenizer.json") for side in ("source", "target")][:n]


def is_prepared(run: RunFolder) -> bool:
    return (run.data / "train.safetensors").exists()


def discard(run: RunFolder) -> None:
    """Delete the vocabulary and the examples left by an earlier run, so that the corpus is read again."""
    prepared = [f"data/{split}.{suffix}" for split in ("train", "valid", "test") for suffix in ("safetensors", "json")]
    for name in (*TOKENIZER_FILES, CLASSES, CALIBRATION, *prepared, "data/test.jsonl"):
        (run.path / name).unlink(missing_ok=True)
