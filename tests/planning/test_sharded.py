"""The plan of a sharded model, against the live bytes of a real step on two ranks."""

import json
import sys
import weakref
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Batch, Tensors, TextBatch
from clearformer.models.build import build_model
from clearformer.planning.clocks import Roofline
from clearformer.planning.devices import Device
from clearformer.planning.estimate import Target, memory_parts
from clearformer.planning.rehearsal import rehearse
from clearformer.recipe import Recipe
from clearformer.tasks import task_named
from clearformer.training.distributed import World, shard
from clearformer.training.loop import Trainer
from clearformer.training.statistics import set_training

SMALL = {"n_heads": 2, "dropout": 0.0}
PAIRS = {"kind": "transformer", "n_encoder_layers": 2, "n_decoder_layers": 2, **SMALL}
TEXT = {"kind": "gpt", "n_layers": 4, **SMALL}
CASES: dict[str, tuple[dict[str, Any], Tensors]] = {
    "embeddings": (
        {**PAIRS, "d_model": 32, "d_ff": 64, "source_vocab": 20000, "target_vocab": 20000},
        Batch.blank(2, 4),
    ),
    "logits": ({**TEXT, "d_model": 32, "d_ff": 64, "vocab": 30000}, TextBatch.blank(4, 32)),
    "blocks": ({**TEXT, "d_model": 256, "d_ff": 2048, "vocab": 50}, TextBatch.blank(2, 8)),
    "both": ({**TEXT, "d_model": 128, "d_ff": 512, "vocab": 4000}, TextBatch.blank(4, 16)),
}


def recipe(model: dict[str, Any]) -> Recipe:
    train = {"parallel": "shard", "ema": 0.0, "precision": "float32"}
    return Recipe.parse({"data": {"train": {"path": "none"}}, "model": model, "train": train}, "test")


class Live(TorchDispatchMode):
    """The most bytes that tensors hold at a time. FSDP frees gathered weights by resizing their storage to 0."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, Any] = {}
        self.peak = 0

    def add(self, tensor: Tensor) -> None:
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        if (place := storage._cdata) not in self.storages:
            self.storages[place] = weakref.ref(storage)
            weakref.finalize(storage, self.storages.pop, place, None).atexit = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self.add(value)
        living = (reference() for reference in list(self.storages.values()))
        self.peak = max(self.peak, sum(storage.nbytes() for storage in living if storage is not None))
        return result


def measure(rank: int, path: str) -> None:
    """One of two ranks: train the second step of every case, and write its peak in bytes."""
    folder = Path(path)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    peaks = {}
    for name, (sizes, batch) in CASES.items():
        tables = recipe(sizes)
        task = task_named(tables.objective.kind)(tables, RunFolder(folder))
        model = build_model(tables.model)
        shard(model, torch.device("cpu"))
        set_training(model)
        parts = (model, task.build_objective(), tables.optim.build(model), tables.schedule, tables.train, task.run)
        trainer = Trainer(*parts, torch.device("cpu"), World(rank, 2))
        trainer.step([batch], 2 * batch.n_tokens)
        with Live() as live:
            state = (value for slots in trainer.optimizer.state.values() for value in slots.values())
            for value in [*model.parameters(), *model.buffers(), *state, *vars(batch).values()]:
                if isinstance(value, Tensor):
                    live.add(value)
            trainer.step([batch], 2 * batch.n_tokens)
        peaks[name] = live.peak
    (folder / f"{rank}.json").write_text(json.dumps(peaks))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("ranks")
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    program = f"import sys; sys.path[:0] = {path}; import test_sharded, torch.multiprocessing as mp\n"
    program += f"if __name__ == '__main__': mp.spawn(test_sharded.measure, ({str(folder)!r},), nprocs=2)"
    (folder / "ranks.py").write_text(program)
    done = run([sys.executable, str(folder / "ranks.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads((folder / "0.json").read_text()))


@pytest.mark.parametrize("name", list(CASES))
def test_the_plan_of_shards_is_what_a_step_holds(name: str, measured: dict[str, int]) -> None:
    sizes, batch = CASES[name]
    device = Device("any", "", 1e9, 1.0, 1.0, 1.0)
    done = rehearse(recipe(sizes), [([batch], 2 * batch.n_tokens)])
    parts = memory_parts(done, recipe(sizes), Target(device, 2, Roofline(device)))
    planned = sum(n for part, n in parts.items() if part not in ("allocator", "process"))
    assert 0.98 < planned / measured[name] < 1.10


def test_weights_outside_the_blocks_are_gathered() -> None:
    """V·D numbers, tied: gathered in the whole pass, whatever the number of devices."""
    sizes, batch = CASES["logits"]
    done = rehearse(recipe(sizes), [([batch], batch.n_tokens)])
    device = Device("any", "", 1e9, 1.0, 1.0, 1.0)
    parts = memory_parts(done, recipe(sizes), Target(device, 8, Roofline(device)))
    assert parts["gathered embeddings and head"] >= 4 * 30000 * 32
