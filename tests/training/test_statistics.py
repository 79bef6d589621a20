"""Batch norms' running statistics: averaged with the weights, shared by the ranks, left alone where nothing learns.

Run as a program, this file is one rank of the last test.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from clearformer.checkpoint import load_tensors, save_tensors
from clearformer.training.average import Average
from clearformer.training.distributed import join_world, leave_world
from clearformer.training.statistics import average_statistics, set_training, statistics

CPU = torch.device("cpu")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.BatchNorm2d(5, affine=False))


def test_they_are_averaged_with_the_weights() -> None:
    model = network()
    average, expected = Average(model, 0.5), model[1].running_mean.clone()
    for step in range(1, 4):
        model(torch.randn(7, 2, 5, 5))
        average.set_step(step)
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model[1].running_mean
    own = model[1].running_mean.clone()
    torch.testing.assert_close(average.weights["1.running_mean"], expected)
    with average.swapped_in(model):
        torch.testing.assert_close(model[1].running_mean, expected)
    assert model[1].running_mean.equal(own)
    assert not own.equal(expected)


def test_a_norm_that_does_not_learn_keeps_its_own() -> None:
    model = network()
    model[1].requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    set_training(model)
    assert [module.training for module in model] == [True, False, True, True]
    model(torch.randn(7, 2, 5, 5))
    after = model.state_dict()
    assert [name for name, tensor in before.items() if not tensor.equal(after[name])] == [
        "3.running_mean", "3.running_var", "3.num_batches_tracked",
    ]  # fmt: skip
    assert [name for name, _ in statistics(model)] == ["3.running_mean", "3.running_var"]
    assert "1.running_mean" not in Average(model, 0.9).weights


def be_a_rank(folder: Path) -> None:
    world, model = join_world(CPU), network()
    model(torch.full((2, 2, 5, 5), 1.0 + world.rank))
    own = dict(model.state_dict())
    save_tensors(folder / f"own-{world.rank}.safetensors", own)
    average_statistics(model, world)
    save_tensors(folder / f"shared-{world.rank}.safetensors", model.state_dict())
    leave_world(world)


@pytest.mark.slow
def test_ranks_hold_the_mean_of_what_they_saw(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, __file__, tmp_path], env={**common, "RANK": str(i)}) for i in range(2)]
    assert [rank.wait(200) for rank in ranks] == [0, 0]
    one, two = (load_tensors(tmp_path / f"own-{i}.safetensors")[0] for i in range(2))
    shared = [load_tensors(tmp_path / f"shared-{i}.safetensors")[0] for i in range(2)]
    assert not one["1.running_mean"].equal(two["1.running_mean"])
    for found in shared:
        for name in ("1.running_mean", "1.running_var", "3.running_mean", "3.running_var"):
            torch.testing.assert_close(found[name], (one[name] + two[name]) / 2)
        assert found["0.weight"].equal(one["0.weight"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    be_a_rank(Path(sys.argv[1]))
