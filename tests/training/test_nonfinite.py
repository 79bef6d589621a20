"""A step whose loss or gradient is not finite: training stops, skips it, or goes back and leaves its batch out."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.errors import ConfigError, TrainingError
from clearformer.training import journal
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.nonfinite import MOST, Guard
from clearformer.training.optim import OptimConfig
from clearformer.training.schedules import ScheduleConfig

CPU = torch.device("cpu")
CONFIG = TrainConfig(steps=13, log_every=3, validate_every=4, save_every=4, ema=0.9)
BAD = (1, 2)  # epoch and step in the epoch: step 7 of the run, batch 3 of epoch 2


@dataclass(frozen=True)
class Rows:
    x: Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> "Rows":
        return self


class Steps:
    """Four steps an epoch, of two micro-batches each; one of the `bad` steps has a value that is not finite."""

    group = 2

    def __init__(self, *bad: tuple[int, int], value: float = float("nan")) -> None:
        self.bad, self.value = bad, value

    def count(self, epoch: int) -> int:
        return 4

    def load(self, epoch: int, position: int, world: World) -> Any:
        draw = torch.Generator().manual_seed(1000 * epoch + position)
        rows = [torch.randn(3, 5, generator=draw) for _ in range(self.group)]
        if (epoch, position) in self.bad:
            rows[1][2, 3] = self.value
        return [Rows(x) for x in rows], 6


def squares(model: nn.Module, batch: Rows) -> tuple[Tensor, int]:
    return model(batch.x).square().sum(), len(batch.x)


def trainer(folder: Path, how: str, **changes: Any) -> Trainer:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.3), nn.Linear(7, 2))
    config = CONFIG.changed(on_nonfinite=how, **changes)
    optimizer = OptimConfig(lr=1e-2).build(model)
    return Trainer(model, squares, optimizer, ScheduleConfig(warmup=4), config, RunFolder(folder), CPU, World())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    lines: list[str] = []
    monkeypatch.setattr(journal.Journal, "say", lambda self, text: lines.append(text))
    return lines


def weights(folder: Path) -> dict[str, Tensor]:
    return load_tensors(folder / "last.safetensors")[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_stop_names_the_step_its_batch_and_the_way_on(tmp_path: Path, value: float) -> None:
    reason = r"gradient is not a finite number at step 7, batch 3 of epoch 2; .*\nhint: .*train.on_nonfinite=skip"
    with pytest.raises(TrainingError, match=reason):
        trainer(tmp_path, "stop").train(Steps(BAD, value=value))
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path).values())


def test_a_skipped_step_changes_nothing(tmp_path: Path, said: list[str]) -> None:
    made = trainer(tmp_path, "skip", ema=0)
    states = []
    for _ in made.steps(Steps(BAD)):
        state = {
            **made.model.state_dict(),
            **{str(k): v["exp_avg"] for k, v in enumerate(made.optimizer.state.values())},
        }
        states.append({name: tensor.clone() for name, tensor in state.items() if tensor.is_floating_point()})
    assert all(torch.equal(states[6][name], states[5][name]) for name in states[5])
    assert not torch.equal(states[7]["0.weight"], states[6]["0.weight"])
    assert "step 7, batch 3 of epoch 2: the training loss or its gradient is not finite; 1 step skipped" in said
    records = [record for record in read_metrics(tmp_path / "metrics.jsonl") if record["kind"] == "train"]
    assert [record["step"] for record in records] == [3, 6, 9, 12, 13]
    assert all(0 < record["loss"] < 100 for record in records)


def test_a_run_that_only_skips_is_stopped(tmp_path: Path) -> None:
    places = [(epoch, position) for epoch in range(5) for position in range(4)]
    with pytest.raises(TrainingError, match="not a finite number at step"):
        trainer(tmp_path, "skip", steps=19).train(Steps(*places))


@pytest.mark.parametrize("save_every", [4, 50])
def test_a_rewound_run_is_one_without_the_batch(tmp_path: Path, said: list[str], save_every: int) -> None:
    """Bit for bit: weights, optimiser, average and metrics."""
    clean = trainer(tmp_path / "clean", "rewind", save_every=save_every)
    clean.progress.left_out = [[BAD[0], (BAD[1] + 1) * 2]]
    clean.train(Steps())
    rewound = trainer(tmp_path / "rewound", "rewind", save_every=save_every)
    rewound.train(Steps(BAD))
    back = 4 if save_every == 4 else 0
    assert any(line.endswith(f"is not finite; back at step {back}, without this batch") for line in said)
    one, two = weights(tmp_path / "clean"), weights(tmp_path / "rewound")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    losses = [[r["loss"] for r in read_metrics(tmp_path / name / "metrics.jsonl")] for name in ("clean", "rewound")]
    assert losses[0] == losses[1]


def test_a_resumed_run_still_leaves_the_batch_out(tmp_path: Path) -> None:
    trainer(tmp_path, "rewind", steps=9).train(Steps(BAD))
    again = trainer(tmp_path, "rewind")
    again.resume()
    assert again.progress.left_out == [[BAD[0], (BAD[1] + 1) * 2]]


def test_a_run_that_only_rewinds_is_stopped(tmp_path: Path) -> None:
    places = [(epoch, position) for epoch in range(9) for position in range(4)]
    made = trainer(tmp_path, "rewind")
    with pytest.raises(TrainingError, match="not a finite number at step"):
        made.train(Steps(*places[3:]))
    assert len(made.progress.left_out) == MOST


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "momentum", "nesterov"])
@pytest.mark.parametrize("is_good", [True, False])
def test_a_fused_optimiser_skips_without_the_host(kind: str, is_good: bool) -> None:
    """As on a GPU, where the condition is a tensor that the host never reads."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(3, 5))
    optimizer = OptimConfig(kind=kind).build(nn.ParameterList([weight]))
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = True, False
    guard = Guard("skip", CPU)
    for step, good in enumerate((True, is_good, True), 1):
        before = weight.detach().clone()
        weight.grad = torch.full((3, 5), 0.5 if good else float("nan"))
        guard.begin(step, (0, step))
        guard.update(optimizer, guard.look(torch.tensor(1.0), weight.grad.norm(), torch.tensor(7.0)))
        assert torch.equal(weight, before) != good
    bad = guard.read()
    assert (bad is None) == is_good
    assert bad is None or (bad.first, bad.place, bad.n_steps, bad.row, bad.tokens) == (2, (0, 2), 1, 0, 7)
    assert guard.read() is None


@pytest.mark.parametrize("lr", [1e38, float("inf"), float("nan")])
def test_a_rate_beyond_all_sense_is_refused(lr: float) -> None:
    with pytest.raises(ConfigError, match=r"lr = .* is too (large|small)"):
        OptimConfig.parse({"lr": lr})
