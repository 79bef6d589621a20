"""The base of every task: what each must say, and the parts that are the same for all.

Task.plan(request)              a recipe chosen from the data
task = Task(recipe, run)
task.learn(base, survey)        the vocabulary and the classes, in memory; or task.load() from the run folder
task.settle()                   the recipe with the sizes that these decide, final
task.save(); task.store()       vocabulary, classes and examples in the run folder
task.steps(world)               what the training loop feeds on
task.validation(device)         (model, step) -> scores, now and then
task.test(model)                scores of the best weights, at the end
Task.handle(model)              the same model for use
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from clearformer.checkpoint import CLASSES, RunFolder, write_json, write_text
from clearformer.data.corpora import Corpora
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.metric import Metric
from clearformer.objectives import Objective
from clearformer.tables import Tables, override
from clearformer.tasks import Flag, Given, objective_named
from clearformer.text import Tokenizer
from clearformer.training.distributed import World
from clearformer.training.feed import Split, Steps
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast
from clearformer.tuning.methods import Method

TOKENIZER_FILES = ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json")


@dataclass(frozen=True)
class Request:
    """What a user asks of zero configuration. Settings win over whatever is chosen."""

    sources: dict[str, dict[str, Any]]
    """The files of each split, as [data] writes them."""
    model: str | None
    settings: Sequence[str]
    device: str
    parse: Callable[[Mapping[str, Any], str], Tables]
    method: Method = "full"

    def recipe(self, table: Mapping[str, Any]) -> Tables:
        """The tables validated, settings applied."""
        return self.parse(self.override(table), "--set")

    def override(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return override(table, self.settings)

    def steps(self, chosen: int) -> int:
        """The steps that the settings ask for, else those chosen: a warm-up is a fraction of them."""
        return int(self.override({"train": {"steps": chosen}})["train"]["steps"])

    @property
    def data(self) -> dict[str, Any]:
        """[data], to begin a table with."""
        return {split: dict(source) for split, source in self.sources.items()}


@dataclass(frozen=True)
class Pretrained:
    """A trained model as it lies in a folder, ours or Hugging Face's: opened, and not yet made ready for a use."""

    name: str
    path: Path
    recipe: Tables
    """For a Hugging Face folder, what `import` would write: [origin] and [model], for images also [image]."""
    network: nn.Module
    tokenizers: list[Tokenizer]
    """One for each side of a translator, else one; none where there is no text."""
    template: str | None = None
    """How a conversation is written, if the model was taught to converse."""
    classes: list[str] | None = None
    """The labels of a classifier in the order of its scores; an empty list in a regression."""

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
    """A recipe that was chosen, and what was learnt of the data on the way, so that it need not be read again."""

    recipe: Tables
    survey: Any = None


class Task(ABC):
    """One training of its kind, at work in a run folder; its class methods know no run."""

    flag: ClassVar[Flag]
    data: ClassVar[type[Corpora]]
    objective: ClassVar[type[Any]]
    unit: ClassVar[str] = "tokens"
    """What a loss is a mean over, and what speed is measured in: tokens, examples or images."""
    n_tokenizers: ClassVar[int] = 1
    """2 where there are a source and a target side, 0 where there is no text."""
    has_classes: ClassVar[bool] = False

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        self.recipe, self.run = recipe, run
        self.tokenizers: list[Tokenizer] = []
        self.classes: list[str] | None = None

    # --- what it is

    @classmethod
    @abstractmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        """The scores of a validation; the first decides which weights are best, unless the recipe names another."""

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        """Refuse tables that contradict one another. Each is valid by itself already."""
        return

    @classmethod
    def deciding_metric(cls, recipe: Tables) -> Metric:
        """The score that decides which weights are best."""
        metrics = {metric.name: metric for metric in cls.metrics(recipe)}
        name = recipe.train.metric or next(iter(metrics))
        if name not in metrics:
            raise ConfigError(f"[train] metric = `{name}` is not validated", suggest(name, metrics))
        return metrics[name]

    # --- zero configuration

    @classmethod
    def sources(cls, given: Given) -> dict[str, dict[str, Any]]:
        """The files that were named, by split, as [data] writes them."""
        return {split: {"path": Path(path), **given.options} for split, path in given.splits.items()}

    @classmethod
    def plan(cls, request: Request) -> Plan:
        """A recipe chosen from the data."""
        raise ConfigError(f"no recipe can be chosen for --{cls.flag.name} yet", "give a recipe, a TOML file")

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        """A recipe that goes on from the model in `start`, whose recipe is `old`."""
        raise ConfigError(f"no model can be fine-tuned on --{cls.flag.name} yet", f"train one: --{cls.flag.name}")

    # --- from files to a run folder

    @abstractmethod
    def learn(self, base: Pretrained | None, survey: Any) -> None:
        """Set `tokenizers` and `classes` from the training data, or take them from the base."""

    @abstractmethod
    def settle(self) -> Tables:
        """The recipe with the sizes that vocabulary and classes decide. It is final: nothing changes it later."""

    @abstractmethod
    def store(self) -> None:
        """Lay the examples of all splits in the run folder, after `learn`. train.safetensors comes last: with it, all
        are there."""

    def save(self) -> None:
        """Write vocabulary and classes."""
        if self.tokenizers:
            save_tokenizers(self.run, self.tokenizers[0], self.tokenizers[-1])
        if self.classes is not None:
            write_json(self.run.path / CLASSES, self.classes)

    def load(self) -> None:
        """Read back what `save` wrote."""
        self.tokenizers = load_tokenizers(self.run, self.n_tokenizers)
        if self.has_classes:
            self.classes = json.loads((self.run.path / CLASSES).read_text(encoding="utf-8"))

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def facts(self) -> dict[str, Any]:
        """What travels with the weights, for whoever loads them."""
        facts: dict[str, Any] = {}
        if self.tokenizers:
            facts["tokenizers"] = [tokenizer.fingerprint() for tokenizer in self.tokenizers]
        return facts if self.classes is None else {**facts, "classes": self.classes}

    def path(self, split: str) -> Path:
        """The file of a split."""
        return self.run.data / f"{split}.safetensors"

    # --- in training

    @abstractmethod
    def split(self, name: str) -> Split:
        """The examples of a split, cut into micro-batches."""

    @abstractmethod
    def describe(self) -> str:
        """The training data in a few words: "28,873 training pairs, vocabulary 8,000"."""

    @abstractmethod
    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """The metrics of a split, and whatever else a report should have."""

    def sample(self, model: nn.Module, step: int) -> str | None:
        """Something the model does at this validation, to look at."""
        return None

    def build_objective(self) -> Objective:
        """The objective with its own table, and with the tables that it names in `tables`."""
        kind = objective_named(self.recipe.objective.kind)
        tables = (getattr(self.recipe, name) for name in getattr(kind, "tables", ()))
        objective: Objective = kind(self.recipe.objective, *tables)
        return objective

    def steps(self, world: World) -> Steps:
        return Steps(self.split("train"), self.recipe.train.accumulation * world.size)

    def validation(self, device: torch.device) -> Validate:
        """Score the whole validation split, uncompiled, and show a sample."""
        metrics = self.metrics(self.recipe)

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, self.recipe.train.precision):
                scores, sample = self.score(model, "valid"), self.sample(model, step)
            if sample is not None:
                console.print(sample, style="dim", markup=False)
            return {metric.name: scores[metric.name] for metric in metrics}

        return validate

    @property
    def has_test(self) -> bool:
        """Whether there is a test split."""
        return self.path("test").exists()

    @torch.no_grad()
    def test(self, model: Pretrained) -> dict[str, Any]:
        """The scores of the best weights on the test split, which are printed."""
        scores = self.score(model.network.eval(), "test")
        summary = ", ".join(metric.format(scores[metric.name]) for metric in self.metrics(self.recipe))
        count = next((f" on {scores[unit]:,} {unit}" for unit in (self.unit, *UNITS) if unit in scores), "")
        console.print(f"test: {summary}{count}")
        return scores

    # --- in use

    @classmethod
    @abstractmethod
    def handle(cls, model: Pretrained) -> Handle:
        """The model for use."""

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> Handle:
        """The model as a maker of vectors, of length 1 if `unit`; the model itself may say so if that is None."""
        raise CheckpointError(
            f"{model.name} is of kind {model.config.kind}, which makes no vectors",
            "choose a BERT, a GPT, a classifier or a network for images",
        )

    @classmethod
    @abstractmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """The scores of the model on other files."""


UNITS = ("sentences", "words", "tokens", "examples", "images")  # what a report may count, as it is printed


def refuse_options(given: Given, options: Mapping[str, Any]) -> None:
    """Refuse options of `evaluate` that mean nothing for this kind of data."""
    for name in options:
        written = f"--{name.replace('_', '-')}"
        raise ConfigError(f"{written} means nothing for --{given.flag.name}", f"leave {written} out")


def mean_loss(objective: Any, model: nn.Module, batches: Iterable[Any], device: torch.device) -> float:
    """The mean of an objective over batches, by sums and counts."""
    total, count = 0.0, 0
    for batch in batches:
        loss, n = objective(model, batch.to(device))
        total, count = total + float(loss), count + n
    return total / count


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def vocab_keys(n_tokenizers: int) -> tuple[str, ...]:
    """The keys of [model] that count entries, one for each tokenizer."""
    return ("source_vocab", "target_vocab") if n_tokenizers == 2 else ("vocab",)[:n_tokenizers]


def save_tokenizers(run: RunFolder, source: Tokenizer, target: Tokenizer) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    if source.fingerprint() == target.fingerprint():
        write_text(run.path / "tokenizer.json", target.to_json())
    else:
        write_text(run.path / "source.tokenizer.json", source.to_json())
        write_text(run.path / "target.tokenizer.json", target.to_json())


def load_tokenizers(run: RunFolder, n: int) -> list[Tokenizer]:
    """The tokenizers of a run folder: none, one, or those of both sides, which may be the same."""
    if n == 0:
        return []
    shared = run.path / "tokenizer.json"
    if shared.exists():
        return [Tokenizer.load(shared)] * n
    return [Tokenizer.load(run.path / f"{side}.tokenizer.json") for side in ("source", "target")][:n]


def is_prepared(run: RunFolder) -> bool:
    return (run.data / "train.safetensors").exists()


def discard(run: RunFolder) -> None:
    """Forget a preparation that another training left, so that the corpus is read again."""
    prepared = [f"data/{split}.{suffix}" for split in ("train", "valid", "test") for suffix in ("safetensors", "json")]
    for name in (*TOKENIZER_FILES, CLASSES, *prepared, "data/test.jsonl"):
        (run.path / name).unlink(missing_ok=True)
