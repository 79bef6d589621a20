"""The table [train] of a recipe: length, batches, precision and checkpoints of a run."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from clearformer.config import Config
from clearformer.training.compiling import BatchShapes, How
from clearformer.training.nonfinite import OnNonfinite
from clearformer.training.precision import Precision
from clearformer.training.recompute import Recompute
from clearformer.wording import count


def as_names(value: Any) -> Any:
    """Split "tensorboard,mlflow", as --set gives it, into a list."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


class TrainConfig(Config):
    """The [train] table of a recipe."""

    steps: int = Field(8000, ge=1, description="number of optimiser steps")
    epochs: float | None = Field(
        None, gt=0, description="number of epochs, or a fraction; replaces `steps` as soon as the data is prepared"
    )
    max_tokens: int | None = Field(
        None, ge=1, description="target tokens (images for vision tasks) after which training stops before `steps`"
    )
    max_seconds: float | None = Field(
        None, gt=0, description="seconds of training and validation after which training stops before `steps`"
    )
    tokens: int = Field(
        4096, ge=1, description="tokens per micro-batch on each side, padding included (images for vision tasks)"
    )
    accumulation: int = Field(1, ge=1, description="micro-batches per process and step")
    per_step: Literal["batches", "epoch"] = Field(
        "batches",
        description="what a step reads: `accumulation` micro-batches, or a whole epoch in as many micro-batches as it "
        "needs (full-batch gradient descent)",
    )
    clip: float = Field(1.0, ge=0, description="maximum gradient norm; 0 disables clipping")
    on_nonfinite: OnNonfinite = Field(
        "stop",
        description="what happens when the loss or the gradient of a step is not a finite number: stop; skip (the step "
        "changes nothing); or rewind (go back to the last checkpoint, and leave out the batch)",
    )
    ema: float = Field(
        0.999, ge=0, lt=1, description="decay of the moving average of the weights; 0 uses the weights of the last step"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="seed of all random draws")
    log_every: int = Field(50, ge=1, description="steps between log records")
    validate_every: int = Field(500, ge=1, description="steps between validations")
    save_every: int = Field(500, ge=1, description="steps between checkpoints")
    save_minutes: float = Field(
        10, gt=0, description="minutes after which a checkpoint is saved, even if `save_every` is longer"
    )
    resume: Literal["auto", "always", "never"] = Field(
        "auto",
        description="whether the same command continues the run in its folder: always, never, or auto, if torchrun, "
        "SLURM or Kubernetes has started it again",
    )
    timeout: float = Field(
        60, gt=0, description="seconds after which a process of a distributed run that does not answer is given up"
    )
    pause: int | None = Field(
        None, ge=1, description="step after which the run is saved and stops; --resume continues it"
    )
    patience: int = Field(
        0, ge=0, description="validations without improvement before training stops; 0 disables early stopping"
    )
    metric: str | None = Field(
        None, description="validation metric that decides the best checkpoint; default: by task, bleu for translation"
    )
    precision: Precision = Field(
        "auto", description="floating-point precision; auto is bfloat16 on CUDA and float32 elsewhere"
    )
    compile: How = Field(
        "auto",
        description="speed-up on CUDA: graph records each step as a CUDA graph; blocks and whole also compile the "
        "model, which takes a minute or more; auto chooses by the length of the run",
    )
    recompute: Recompute = Field(
        "none",
        description="activations to compute again in the backward pass instead of storing them: none, or blocks (those "
        "inside blocks and the logits), which needs less memory and up to a third more time",
    )
    batches: BatchShapes = Field(
        "auto",
        description="shapes of batches of pairs: free (least padding) or fixed (a few shapes, needed for CUDA graphs); "
        "auto is fixed on CUDA",
    )
    deterministic: bool = Field(False, description="whether CUDA results are bit-identical in every run; slower")
    parallel: Literal["replicate", "shard"] = Field(
        "replicate", description="whether each process holds the whole model or a shard of it (FSDP)"
    )
    loggers: Annotated[tuple[str, ...], BeforeValidator(as_names)] = Field(
        (),
        description="where metrics are logged besides metrics.jsonl: tensorboard, mlflow, wandb or a plugin's logger",
    )
    histograms: bool = Field(
        False,
        description="whether to record histograms of weights, gradients and activations by layer at each "
        "validation, in histograms.jsonl, for `lens histograms`; each takes less time than a step",
    )
    tensorboard: bool = Field(False, description="whether to add tensorboard to `loggers`")

    @property
    def logger_names(self) -> tuple[str, ...]:
        return (*self.loggers, "tensorboard") if self.tensorboard else self.loggers

    def budget(self, unit: str = "tokens") -> str:
        """Describe the budget of a run: its limits in seconds and tokens, or its number of steps if it has none."""
        limits = [] if self.max_seconds is None else [f"{self.max_seconds:,.10g} s"]
        limits += [] if self.max_tokens is None else [count(self.max_tokens, unit.removesuffix("s"), unit)]
        return " or ".join(limits or [count(self.steps, "step")])


def rounds(steps: int, n: float) -> dict[str, int]:
    """The settings of a run of `steps` steps that is validated and saved about n times."""
    period = max(5, int(steps / n))
    return {"validate_every": period, "save_every": period, "log_every": min(50, period)}
