"""A training that diverges ends before it writes anything, so that the files keep the last good state."""

from collections.abc import Iterable, Mapping
from math import inf, isfinite

import torch
from torch import Tensor

from clearformer.checkpoint import RunFolder
from clearformer.errors import TrainingError
from clearformer.metric import LOSS, Metric


def diverged(what: str, step: int, run: RunFolder) -> TrainingError:
    """The error to raise: what is not finite, when, and what of the run folder is still good."""
    good = [path.name for path in (run.model, run.last) if path.exists()]
    match good:
        case []:
            kept = "no good state was saved before"
        case [one]:
            kept = f"{one} holds the last good state"
        case _:
            kept = f"{' and '.join(good)} hold the last good state"
    return TrainingError(
        f"{what} is not a finite number at step {step:,}; {kept}",
        "try a lower learning rate (optim.lr) or a longer warm-up (schedule.warmup)",
    )


def check_scores(scores: Mapping[str, float], metric: Metric, step: int, run: RunFolder) -> None:
    """Refuse a validation whose loss or deciding score is not finite. A NaN elsewhere may be ordinary: it is kept."""
    for name in (LOSS.name, metric.name):
        if not isfinite(scores.get(name, 0.0)):
            raise diverged(f"the validation {name}", step, run)


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every element is, of this rank's slices. One kernel and one wait for the device, however many there are.

    max |x| and not the Euclidean norm, whose square overflows first.
    """
    slices = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    filled = [part for part in slices if part.numel()]  # a rank's slice of a short tensor may be empty
    return not filled or bool(torch.stack(torch._foreach_norm(filled, inf)).isfinite().all())
