"""Labelled texts to a classifier, judged by how often it is right; or to a regression, judged by how near it comes."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, write_json, write_text
from clearformer.data.batch import EncoderBatch
from clearformer.data.collate import TokenBatches
from clearformer.data.labels import Labelled, LabelRows, number, number_classes
from clearformer.data.tags import Tagged
from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.labels import score_classes, score_values
from clearformer.handles.batching import read_rows
from clearformer.loading.handles import load
from clearformer.prepare import CLASSES, is_prepared
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast


class ClassificationTask:
    unit = "examples"
    form: type[LabelRows] = LabelRows

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        self.recipe, self.run = self.fitted(recipe), run
        self.facts: dict[str, Any] = {}
        self.is_regression = getattr(recipe.data, "regression", False)
        self.metrics: tuple[str, ...] = ("loss", "pearson") if self.is_regression else ("accuracy", "macro_f1", "loss")

    def fitted(self, recipe: Recipe) -> Recipe:
        """The recipe with a model that judges what is labelled."""
        if recipe.model.pooling == "none":
            raise ConfigError(
                'model.pooling = "none" judges every token, but a labelled file says what whole texts are',
                'choose mean, max, last or another; or, for labelled words, objective.kind = "token-classification"',
            )
        return recipe

    def prepare(self, base: Any) -> None:
        """`base` is a model to start from: its tokenizer frames the texts."""
        if is_prepared(self.run):
            return
        recipe, seed = self.recipe, self.recipe.train.seed
        train = recipe.data.read("train", seed)
        if not train:
            raise DataError("there is nothing to train on", "give more examples, or hold out a smaller share")
        tokenizer = learn_tokenizer(train, recipe) if base is None else base.tokenizer
        classes = [] if self.is_regression else sorted(set(labels_of(train)))
        if len(classes) == 1:
            raise DataError(
                f"every training text has the same label, `{classes[0]}`", "check the label's column, or give more text"
            )
        self.run.path.mkdir(parents=True, exist_ok=True)
        write_text(self.run.path / "tokenizer.json", tokenizer.to_json())
        write_json(self.run.path / CLASSES, classes)
        length = min(recipe.data.max_tokens or recipe.model.max_length, recipe.model.max_length)
        has_test = recipe.data.test is not None or recipe.data.held_out_test > 0
        for split in ("test", "valid", "train"):  # train comes last: once it is there, everything is
            if split != "test" or has_test:
                found = train if split == "train" else recipe.data.read(split, seed)
                if not found:
                    raise DataError(f"there is no text for {split}", f"give more, or a file for [data] {split}")
                rows = self.form.of(found, answers_of(found, classes, split), tokenizer, length)
                rows.save(self.run.data / f"{split}.safetensors")
                console.print(f"{split}: {len(rows):,} texts of {rows.tokens.lengths.mean():.0f} tokens")

    def open(self) -> Recipe:
        self.tokenizer = Tokenizer.load(self.run.path / "tokenizer.json")
        self.classes: list[str] = json.loads((self.run.path / CLASSES).read_text(encoding="utf-8"))
        self.facts = {"tokenizers": [self.tokenizer.fingerprint()], "classes": self.classes}
        model = self.recipe.model
        # A model that came from elsewhere may have rows to spare.
        vocab = max(self.tokenizer.vocab_size, 0 if self.recipe.origin is None else model.vocab)
        self.recipe = self.recipe.with_model(base=model.base.changed(vocab=vocab), n_classes=len(self.classes) or 1)
        return self.recipe

    def rows(self, split: str) -> LabelRows:
        return self.form.load(self.run.data / f"{split}.safetensors")

    def describe(self, world: World) -> str:
        steps, rows = RowSteps(self.rows("train"), self.recipe, self.tokenizer.pad_id, world), self.rows("train")
        what = f"{len(self.classes)} classes" if self.classes else "a value each"
        return f"{len(rows):,} training texts, {what}, {steps.count(0):,} steps an epoch"

    def steps(self, world: World) -> Steps:
        return RowSteps(self.rows("train"), self.recipe, self.tokenizer.pad_id, world)

    def validation(self, device: torch.device) -> Validate:
        rows = self.rows("valid")

        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, self.recipe.train.precision):
                scores = self.measure(model, rows, device)
            return {name: scores[name] for name in self.metrics}

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not (self.run.data / "test.safetensors").exists():
            return {}
        model = load(self.run.path, str(device)).model
        scores = self.measure(model, self.rows("test"), device)
        told = ", ".join(f"{name} {scores[name]:.4f}" for name in self.metrics)
        console.print(f"test: {told} on {scores['examples']:,} examples")
        return scores

    def measure(self, model: nn.Module, rows: LabelRows, device: torch.device) -> dict[str, Any]:
        scores = read_rows(model, rows.tokens, rows.segments, self.tokenizer.pad_id, device)
        return judge(scores, torch.from_numpy(rows.classes))


def judge(scores: Tensor, answers: Tensor) -> dict[str, Any]:
    return score_values(scores, answers) if answers.is_floating_point() else score_classes(scores, answers)


def labels_of(examples: Sequence[Labelled | Tagged]) -> list[str]:
    return [label for example in examples for label in example.labels]


def answers_of(examples: Sequence[Labelled | Tagged], classes: list[str], split: str) -> np.ndarray:
    """What is right of each text, or word: the number of its class, or, where there are none, its value (n,)."""
    if classes:
        return number_classes(labels_of(examples), classes, split)
    return np.array([number(label) for label in labels_of(examples)], "float32")


def learn_tokenizer(examples: Sequence[Labelled | Tagged], recipe: Recipe) -> Tokenizer:
    """From the training texts, or the file that the recipe names."""
    if recipe.text.file is not None:
        return Tokenizer.load(recipe.text.file)
    return train_tokenizer((text for example in examples for text in example.texts), recipe.text)


class RowSteps:
    """The trainer's view of labelled texts: for each step of each epoch, the micro-batches of every rank."""

    def __init__(self, rows: LabelRows, recipe: Recipe, pad_id: int, world: World) -> None:
        self.rows, self.pad_id, self.group = rows, pad_id, recipe.train.accumulation * world.size
        lengths = np.stack([rows.tokens.lengths - 1] * 2, axis=1)  # the frame is counted already
        batches = TokenBatches(lengths, recipe.train.tokens, recipe.train.seed)
        self.plan = lru_cache(maxsize=2)(lambda epoch: batches.steps(epoch, self.group))

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> tuple[list[EncoderBatch], int]:
        group = self.plan(epoch)[position]
        return [self.rows.batch(rows, self.pad_id) for rows in world.share(group)], max(
            1, sum(map(self.rows.count, group))
        )
