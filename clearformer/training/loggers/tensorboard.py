"""TensorBoard: event files in the folder `tensorboard` of the run. Show them with tensorboard --logdir runs."""

from collections.abc import Mapping
from typing import Any

from clearformer.training.loggers import Logger, RunFacts, library


class TensorBoardLogger(Logger):
    """Scalars by step. A resumed run replaces the steps after its checkpoint (purge_step)."""

    def __init__(self) -> None:
        self.library = library("torch.utils.tensorboard", "tensorboard")
        self.writer: Any = None

    def begin(self, run: RunFacts) -> None:
        self.writer = self.library.SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def end(self, report: Mapping[str, Any] | None) -> None:
        self.writer.close()
