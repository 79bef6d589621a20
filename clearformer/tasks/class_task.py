"""The base class of tasks that predict classes: classes out of balance, and the calibration of a trained model."""

from abc import abstractmethod
from collections.abc import Mapping
from math import ceil
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.checkpoint import CALIBRATION, RunFolder, write_json
from clearformer.errors import CheckpointError
from clearformer.evaluation.metrics.balancing import Balancing, fit_balancing
from clearformer.evaluation.metrics.calibration import calibration_error, fit_temperature, mean_loss, reliability
from clearformer.metric import BALANCED_LOSS, Metric
from clearformer.objectives.class_prior import describe_prior, resolve_prior
from clearformer.objectives.class_weights import describe_balance, resolve
from clearformer.tables import Tables
from clearformer.tasks.task import Pretrained, Task
from clearformer.training.feed import Steps
from clearformer.training.journal import console
from clearformer.tuning.methods import NEW_HEAD
from clearformer.wording import count, listed


class ClassTask(Task):
    has_classes = True
    predicts_classes = True
    notes_imbalance: ClassVar[bool] = True
    """Whether classes that are out of balance are reported. Classes of words usually are."""
    balancing: Balancing | None = None
    """Fitted in the last validation, if objective.prior is set."""

    @abstractmethod
    def outputs(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        """Return the outputs of the head for a split, (N, C) on the CPU, and the labels (N,)."""

    @abstractmethod
    def stored_classes(self, split: str) -> np.ndarray:
        """Return the class of each example of a split, or of each labelled word, (N,), from the run folder."""

    # --- classes out of balance

    def class_counts(self, split: str = "train") -> list[int]:
        """Return the number of examples of each class."""
        counts: list[int] = np.bincount(self.stored_classes(split), minlength=len(self.classes or [])).tolist()
        return counts

    def class_weights(self) -> tuple[float, ...] | None:
        """Return objective.weights by class, or None if they are not set."""
        weights = getattr(self.recipe.objective, "weights", None)
        return resolve(weights, self.classes or [], self.class_counts()) if weights and self.classes else None

    def class_prior(self) -> tuple[float, ...] | None:
        """Return objective.prior by class, or None if it is not set."""
        prior = getattr(self.recipe.objective, "prior", None)
        return resolve_prior(prior, self.class_counts()) if prior and self.classes else None

    def objective_table(self) -> Any:
        resolved = {"weights": self.class_weights(), "prior": self.class_prior()}
        changes = {name: values for name, values in resolved.items() if values is not None}
        return self.recipe.objective.changed(**changes) if changes else self.recipe.objective

    def print_balance(self) -> None:
        """Print the class weights or the prior; without any, print that classes are out of balance, if they are."""
        if not self.classes:
            return
        weights, prior = self.class_weights(), self.class_prior()
        lines = [
            describe_balance(self.classes, self.class_counts(), weights, self.unit)
            if prior is None
            else describe_prior(self.classes, prior)
        ]
        if weights is not None:
            lines.append(self.describe_steps())
        missing = [name for name, n in zip(self.classes, self.class_counts("valid")) if n == 0]
        if missing:
            names = listed(missing, most=5)
            lines.append(f"the validation data has no {self.unit} of {names}; add some with --valid or data.held_out")
        for line in filter(None, lines):
            if weights is not None or prior is not None or self.notes_imbalance:
                console.print(line, markup=False, highlight=False, soft_wrap=True)

    def describe_steps(self) -> str | None:
        """Recommend larger steps if most steps lack examples of the rarest class; otherwise return None.

        The few steps that have such an example have a large gradient, which train.clip limits, so that the weights have
        less effect.
        """
        accumulation, counts = self.recipe.train.accumulation, self.class_counts()
        n_steps = Steps(self.split("train"), accumulation).count(0)
        n, name = min((n, name) for n, name in zip(counts, self.classes or []) if n)
        if n >= n_steps:
            return None
        return (
            f"a step has {n / n_steps:.2g} {self.unit} of {name} on average, too few for weights to have much effect; "
            f"larger steps: --set train.accumulation={ceil(accumulation * n_steps / n)}"
        )

    def balanced_outputs(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        """Return the outputs and labels of a split. With a prior, those for validation are balanced (balancing.py).

        `complete` then changes the weights in the same way: the saved model gives these outputs without any adjustment.
        """
        logits, labels = self.outputs(model, split)
        if split != "valid" or self.class_prior() is None:
            return logits, labels
        self.balancing = fit_balancing(logits, labels)
        return self.balancing(logits), labels

    def complete(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.balancing is None:
            return {}
        names = [f"{NEW_HEAD}.{part}" for part in ("weight", "bias")]
        return dict(zip(names, self.balancing.folded(*(weights[name] for name in names))))

    # --- calibration

    @classmethod
    @torch.no_grad()
    def calibrate(cls, model: Pretrained) -> float:
        """Fit the temperature on the validation data of the run, and write calibration.json to the run folder."""
        task = cls(model.recipe, RunFolder(model.path))
        if not task.path("valid").exists():
            raise CheckpointError(
                f"{model.name} has no validation data to calibrate on: {task.path('valid')} does not exist",
                "calibrate a run folder of clearformer train or finetune",
            )
        task.tokenizers, task.classes = model.tokenizers, model.classes
        logits, labels = task.outputs(model.network.eval(), "valid")
        temperature = fit_temperature(logits, labels)
        bins = [reliability(logits, labels, t) for t in (1.0, temperature)]
        errors = [calibration_error(rows) for rows in bins]
        losses = [mean_loss(logits, labels, t) for t in (1.0, temperature)]
        record: dict[str, Any] = {"temperature": temperature, task.unit: len(labels)}
        record |= {"ece": errors[1], "ece_uncalibrated": errors[0], "loss": losses[1], "loss_uncalibrated": losses[0]}
        names = ("reliability_uncalibrated", "reliability")
        write_json(
            model.path / CALIBRATION, record | {n: [row._asdict() for row in some] for n, some in zip(names, bins)}
        )
        console.print(
            f"calibrated on {count(len(labels), 'validation example')}: temperature {temperature:.3f}, "
            f"expected calibration error {errors[0]:.4f} before and {errors[1]:.4f} after"
        )
        return temperature


def deciding_first(metrics: tuple[Metric, ...], recipe: Tables) -> tuple[Metric, ...]:
    """Put the balanced loss first if classes are balanced, since accuracy may choose a model that ignores rare ones."""
    is_balanced = any(getattr(recipe.objective, name, None) for name in ("weights", "prior"))
    return (BALANCED_LOSS, *metrics) if is_balanced else metrics
