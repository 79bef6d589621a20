"""Processes of one start share a name, and ignore what the processes of earlier starts have left in the store.

Run as a program, this file is one rank of the test at its end.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from clearformer.errors import MachineError
from clearformer.training.distributed import count_gpus, join_world, leave_world
from clearformer.training.joining import ask_name, join_name


def names(store, size: int, delays: tuple[float, ...]) -> set[str]:
    def start(rank: int) -> str:
        time.sleep(delays[rank])
        return join_name(store, rank, size, 30)

    with ThreadPoolExecutor(size) as pool:
        return {*pool.map(start, range(size))}


@pytest.mark.parametrize("delays", [(0.0, 0.1, 0.2), (0.2, 0.1, 0.0)], ids=["first-early", "first-late"])
def test_each_start_has_a_name_of_its_own(delays):
    store = dist.HashStore()
    found = [names(store, 3, delays) for _ in range(3)]
    assert [len(some) for some in found] == [1, 1, 1]
    assert len(set.union(*found)) == 3


def test_a_start_that_was_cut_off_does_not_matter():
    """Rank 1 asked and died; the next start has fewer ranks, then more."""
    store = dist.HashStore()
    with pytest.raises(MachineError, match=r"have not all started within 0\.1 s"):
        ask_name(store, 1, 0.1)
    assert len(names(store, 2, (0.0, 0.2))) == 1
    assert len(names(store, 4, (0.0, 0.2, 0.0, 0.1))) == 1


@pytest.mark.parametrize(("gpus", "n"), [("ab", 2), ("aa", 1), ("abab", 2), ("abc", 3)])
def test_every_rank_knows_how_many_gpus_there_are(gpus, n):
    """NCCL takes two ranks on one GPU for an error, so that all ranks have to choose gloo together."""
    store = dist.HashStore()
    with ThreadPoolExecutor(len(gpus)) as pool:
        found = pool.map(lambda rank: count_gpus(store, rank, len(gpus), gpus[rank]), range(len(gpus)))
        assert [*found] == [n] * len(gpus)


def test_the_first_rank_does_not_wait_for_ever():
    with pytest.raises(MachineError, match="have not all started"):
        join_name(dist.HashStore(), 0, 2, 0.1)


@pytest.mark.slow
def test_ranks_connect_after_a_kill():
    """The store of torchrun, which outlives the ranks: both are killed, and started again, the second one later."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
    for how, code in (("killed", -signal.SIGKILL), ("ends", 0)):
        ranks = [
            subprocess.Popen([sys.executable, __file__, how], env={**common, "RANK": str(rank)}) for rank in range(2)
        ]
        assert [rank.wait(100) for rank in ranks] == [code, code]


def be_a_rank(how: str) -> None:
    if how == "ends" and os.environ["RANK"] == "1":
        time.sleep(3)  # the first rank would find the address of the one that was killed
    world = join_world(torch.device("cpu"), 20)
    assert world.sum(torch.tensor(world.rank + 1)).item() == 3
    world.barrier()
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    leave_world(world)


if __name__ == "__main__":
    be_a_rank(sys.argv[1])
