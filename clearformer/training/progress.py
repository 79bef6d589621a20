"""The progress of a run: the part of a checkpoint that is not tensors."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from pydantic import TypeAdapter

from clearformer.errors import CheckpointError


@dataclass
class Progress:
    """The progress of a run: the part of a checkpoint that is not tensors."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # micro-batches of this epoch that were trained on, by all ranks
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0  # of training, validation and saving
    best: float | None = None  # the deciding metric, negated if lower is better
    best_step: int = 0
    stale: int = 0  # validations since the best one
    ranks: int = 0  # processes that the run was started with; with `accumulation`, they define the batches
    judged: int = 0  # the step of the last validation; checkpoints contain this name
    scores: dict[str, float] = field(default_factory=dict)  # the metrics of the best validation
    left_out: list[list[int]] = field(default_factory=list)  # epoch and position of batches that are not trained on
    largest_part: int = 0  # numbers in the largest part of a micro-batch that is tried (split.py); 0: no limit


def check_facts(facts: Mapping[str, Any], where: str) -> None:
    """Check what a checkpoint says about its run, so that a damaged or foreign file is refused as a whole."""
    if "progress" not in facts:
        raise CheckpointError(f"{where} is not a checkpoint of a run", "give the --out folder of an unfinished run")
    try:
        progress = TypeAdapter(Progress).validate_json(json.dumps(facts["progress"]), strict=True)
        meter = facts["meter"]
        is_whole = isinstance(facts["optimizer"], str) and len(meter["sums"]) == 2
        is_whole &= facts["progress"].keys() <= vars(progress).keys()
        counts = (
            progress.step,
            progress.epoch,
            progress.position,
            progress.largest_part,
            meter["tokens"],
            meter["steps"],
        )
        is_whole &= all(isinstance(n, int) and 0 <= n < 2**62 for n in counts)
        is_whole &= isfinite(float(meter["seconds"])) and isfinite(progress.seconds)
    except (ValueError, TypeError, KeyError, OverflowError):
        is_whole = False
    if not is_whole:
        raise CheckpointError(
            f"{where}: its header does not say how far the run is", "the file is damaged; copy it again"
        )


@contextmanager
def fitting(where: str) -> Iterator[None]:
    """Turn the errors of tensors that do not belong to the optimiser or the average into one that names the file."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise CheckpointError(
            f"{where} does not fit the run ({reason})", "the file is damaged, or of another run; copy it again"
        ) from None
