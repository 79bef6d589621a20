"""The counters of a run. Random draws and the order of the data are functions of them (loop.py)."""

from dataclasses import dataclass, field


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
