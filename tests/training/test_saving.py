"""Two ranks save in parts: in one process, with threads and stores of torch. test_sharded_saves.py has real ranks."""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, save_tensors
from clearformer.data.batch import TextBatch
from clearformer.errors import MachineError, TrainingError
from clearformer.training import loop, saving
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.loop import Trainer
from clearformer.training.meeting import Meeting
from clearformer.training.optim import OptimConfig
from clearformer.training.parts import load_saved, write_part
from clearformer.training.saving import Saver
from clearformer.training.schedules import ScheduleConfig
from clearformer.training.session import Session

WEIGHTS = {"weight": torch.arange(15.0).view(3, 5)}


class Ranks(World):
    """One of two ranks, which agree through the store. The first one must be asked first."""

    def agree(self, value: Any) -> Any:
        assert self.meeting is not None
        store = self.meeting.store
        place = f"agreed/{store.add(f'asked/{self.rank}', 1)}"
        if self.is_first:
            store.set(place, json.dumps(value))
        return json.loads(store.get(place))


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    store = dist.HashStore()
    worlds: list[World] = [Ranks(rank, 2, Meeting(store, rank, 2, seconds=20)) for rank in range(2)]
    yield worlds
    for world in worlds:
        assert world.meeting is not None
        world.meeting.end()


def savers(worlds: list[World], folder: Path) -> list[Saver]:
    folder.mkdir()
    return [Saver(RunFolder(folder), world) for world in worlds]


def test_savers_of_two_runs_wait_for_their_own_parts(tmp_path: Path, worlds: list[World]) -> None:
    """Both runs begin with the same number: the second one took the parts of the first for its own."""
    for name in ("one", "two"):
        run = RunFolder(tmp_path / name)
        first, second = savers(worlds, run.path)
        first.save(run.last, WEIGHTS, {})
        time.sleep(0.2)
        assert not run.index.exists()
        second.save(run.last, WEIGHTS, {})
        for saver in (second, first):
            saver.wait()
            saver.close()
        assert torch.equal(load_saved(run.index)[0]["weight"], WEIGHTS["weight"])


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_say_why_one_cannot_write(
    tmp_path: Path, worlds: list[World], monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    def write(path: Path, pieces: Any) -> Any:
        if f"rank-{rank}" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_part(path, pieces)

    monkeypatch.setattr(saving, "write_part", write)
    both = savers(worlds, tmp_path / "run")
    for saver in both:
        saver.save(saver.run.last, WEIGHTS, {})
    for saver in both:
        with pytest.raises(MachineError, match=rf"save-1\.rank-{rank}-of-2\.safetensors cannot be .*the disk is full"):
            saver.wait()
        saver.close()
    assert not RunFolder(tmp_path / "run").checkpoint.exists()


class EndingStore:
    """The store of a first process that ends as soon as another one asks for what it has committed."""

    def __init__(self) -> None:
        self.store = dist.HashStore()

    def check(self, keys: list[str]) -> bool:
        if any("saves" in key for key in keys):
            raise dist.DistNetworkError("Connection reset by peer")
        return bool(self.store.check(keys))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_a_lost_store_is_no_file_that_cannot_be_written(tmp_path: Path) -> None:
    store = EndingStore()
    worlds: list[World] = [Ranks(rank, 2, Meeting(store, rank, 2, seconds=20)) for rank in range(2)]
    for saver in savers(worlds, tmp_path / "run"):
        saver.save(saver.run.last, WEIGHTS, {})
        with pytest.raises(MachineError, match=r"another process of this run has ended, or has not .* for 20 s"):
            saver.wait()
        saver.close()
    for world in worlds:
        assert world.meeting is not None
        world.meeting.end()


# --- a saver whose copies are finished late, as on a GPU


class Steps:
    group = 1

    def count(self, epoch: int) -> int:
        return 2

    def load(self, epoch: int, position: int, world: World) -> Any:
        return [TextBatch(tokens := torch.arange(15).view(3, 5), tokens)], 15


def squares(model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
    return model(batch.tokens.float()).square().sum(), batch.n_tokens


class LateSaver:
    """Stands for a saver on a GPU: tensors are read at `settle`, when they must not have changed yet."""

    def __init__(self) -> None:
        self.pending: dict[str, Tensor] = {}
        self.saved: dict[str, dict[str, Tensor]] = {}
        self.is_waited_for = False

    def save(self, target: Path, tensors: dict[str, Tensor], facts: Any) -> None:
        self.settle()
        self.target, self.pending = target.name, dict(tensors)

    def settle(self) -> None:
        if self.pending:
            self.saved[self.target] = {name: tensor.clone() for name, tensor in self.pending.items()}
            self.pending = {}

    def wait(self) -> None:
        self.settle()
        self.is_waited_for = True

    def check(self) -> None:
        pass

    close = check


class Block(nn.Linear):
    """The methods of a sharded block. Its `forward` is its own, since torch.compile leaves out those of torch."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden)

    def unshard(self) -> None:
        pass

    reshard = reset_iter_state = unshard


def sharded(folder: Path, objective: Any = squares, **changes: Any) -> Trainer:
    """A trainer of one process that saves as if its model were sharded."""
    torch.manual_seed(3)
    model = Block(5, 2)
    config = TrainConfig(steps=4, log_every=1, save_every=2, validate_every=4, ema=0.9).changed(**changes)
    parts = (model, objective, OptimConfig(lr=0.1).build(model), ScheduleConfig(warmup=1), config)
    trainer = Trainer(*parts, RunFolder(folder), torch.device("cpu"), World(), lambda model, step: {"loss": 1.0})
    trainer.is_sharded, trainer.saver = True, LateSaver()  # type: ignore[assignment]
    return trainer


def test_the_average_is_saved_before_it_is_swapped_out(tmp_path: Path) -> None:
    trainer = sharded(tmp_path)
    trainer.train(Steps())
    saver: Any = trainer.saver
    assert trainer.average is not None
    for name, tensor in trainer.average.weights.items():
        assert torch.equal(saver.saved["model.safetensors"][name], tensor)
        assert not torch.equal(saver.saved["last.safetensors"][f"model.{name}"], tensor)


def test_a_run_that_diverges_finishes_its_last_save(tmp_path: Path) -> None:
    def worse(model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
        total, n = squares(model, batch)
        return total * (torch.nan if trainer.progress.step == 3 else 1), n

    trainer = sharded(tmp_path, worse)
    with pytest.raises(TrainingError):
        trainer.train(Steps())
    assert trainer.saver.is_waited_for  # type: ignore[union-attr]


class FullDisk(LateSaver):
    """Its thread finds a full disk, of which the thread of training hears when it waits."""

    def wait(self) -> None:
        raise MachineError("the disk is full", "free some space")


def session_on(trainer: Trainer, n_steps: int) -> Session:
    session = Session(trainer, Steps(), dict, nullcontext())
    assert [next(session).number for _ in range(n_steps)] == [*range(1, n_steps + 1)]
    return session


@pytest.mark.parametrize("end", [Session.save, Session.close])
def test_a_session_waits_for_the_save_of_its_step(tmp_path: Path, end: Callable[[Session], None]) -> None:
    """It is written beside training, and had only begun when the session said `saved`."""
    trainer = sharded(tmp_path)
    session, saver = session_on(trainer, 2), trainer.saver
    assert isinstance(saver, LateSaver)
    assert "last.safetensors" not in saver.saved
    end(session)
    assert saver.is_waited_for
    session.close()


@pytest.mark.parametrize("end", [Session.save, Session.close])
def test_a_session_says_that_its_save_has_failed(
    tmp_path: Path, end: Callable[[Session], None], capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = sharded(tmp_path)
    trainer.saver = FullDisk()  # type: ignore[assignment]
    session = session_on(trainer, 2)
    with pytest.raises(MachineError, match="the disk is full"):
        end(session)
    assert "saved" not in capsys.readouterr().err
    with suppress(MachineError):
        session.close()


def test_a_save_that_has_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MachineError("the disk is full", "free some space")

    trainer = sharded(tmp_path, save_every=3)
    trainer.is_sharded = False
    session = session_on(trainer, 1)
    with monkeypatch.context() as full:
        full.setattr(loop, "save_tensors", fail)
        with pytest.raises(MachineError, match="the disk is full"):
            session.save()
    assert not trainer.run.last.exists()
    session.save()
    assert trainer.run.last.exists()
    session.close()


def test_a_signal_in_the_last_step_does_not_end_the_test(tmp_path: Path) -> None:
    """The ranks of a sharded run ask each other for signals at every 16th block."""
    trainer = sharded(tmp_path)
    trainer.signals = [15]
    save_tensors(trainer.run.model, trainer.model.state_dict())
    results = trainer.tested(lambda model, step: {"calls": sum(len(model(torch.ones(1, 5))) for _ in range(40))})
    assert results == {"calls": 40}


def test_the_test_runs_the_uncompiled_model(tmp_path: Path) -> None:
    """As validation does: blocks would be compiled again for the shapes of decoding."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def test(model: nn.Module, step: int) -> dict[str, int]:
        with torch.no_grad():
            return {"rows": len(model(torch.ones(3, 5)))}

    trainer = sharded(tmp_path)
    save_tensors(trainer.run.model, trainer.model.state_dict())
    trainer.model.compile(backend=backend)
    assert trainer.tested(test) == {"rows": 3}
    assert graphs == []
    test(trainer.model, 0)
    assert len(graphs) == 1
