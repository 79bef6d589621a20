"""Sharded weights are exchanged in the process group that all ranks have joined."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from clearformer.training.distributed import shard


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(3, 5) for _ in range(2))


def test_sharding_takes_the_group_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU, init_device_mesh replaces a group of gloo, and ranks that share it cannot use NCCL."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=30))
    try:
        model = Blocks()
        shard(model, torch.device("cpu"))
        groups = {weight.device_mesh.get_group() for weight in model.parameters()}  # type: ignore[attr-defined]
        assert groups == {dist.group.WORLD}
    finally:
        dist.destroy_process_group()
