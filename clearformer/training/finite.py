"""Checks that stop a diverged run before it saves anything, so that its files contain the last good checkpoint."""

from collections.abc import Iterable, Mapping
from math import inf, isfinite

import torch
from torch import Tensor

from clearformer.checkpoint import RunFolder
from clearformer.errors import TrainingError
from clearformer.metric import LOSS, Metric

RATE = "try a lower learning rate (optim.lr) or a longer warm-up (schedule.warmup)"
SKIP = f"{RATE}, or leave out such batches: --set train.on_nonfinite=skip"


def diverged(quantity: str, step: int, run: RunFolder, batch: str = "", hint: str = RATE) -> TrainingError:
    """The error for a non-finite value, with the step, its batch and the files that can still be used."""
    good = [path.name for path in (run.model, run.checkpoint) if path.exists()]
    match good:
        case []:
            saved = "no checkpoint has been saved"
        case [one]:
            saved = f"{one} contains the last good checkpoint"
        case _:
            saved = f"{' and '.join(good)} contain the last good checkpoint"
    return TrainingError(f"{quantity} is not a finite number at step {step:,}{batch}; {saved}", hint)


def check_results(results: Mapping[str, float], metric: Metric, step: int, run: RunFolder) -> None:
    """Raise if the validation loss or the deciding metric is not finite. Other metrics may be NaN."""
    for name in (LOSS.name, metric.name):
        if not isfinite(results.get(name, 0.0)):
            raise diverged(f"the validation {name}", step, run)


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all elements in this rank's shards are finite, on accelerators with one synchronisation.

    It computes max |x| rather than the Euclidean norm, whose square can overflow for finite values. On the CPU, torch
    finds the largest and the smallest element in a thirtieth of the time. Both pass on a NaN.
    """
    slices = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    filled = [part for part in slices if part.numel()]  # a rank's shard of a short tensor may be empty
    if not filled:
        return True
    if any(part.device.type != "cpu" for part in filled):
        return bool(torch.stack(torch._foreach_norm(filled, inf)).isfinite().all())
    return all(bool(torch.stack(part.aminmax()).isfinite().all()) for part in filled)
