"""Gradients are summed in buckets."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from clearformer.training import gradient_sums
from clearformer.training.distributed import World
from clearformer.training.gradient_sums import buckets, sum_gradients

SHAPES = [(7, 11), (5,), (400, 3), (13,), (2, 3, 5, 7), (1,), (301,)]  # the third and the last are larger than a bucket
SMALL = 1200  # bytes of a bucket


def gradients(rank: int) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(rank)
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    parameters.append(nn.Parameter(torch.zeros(17, dtype=torch.float64)))
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=draw, dtype=p.dtype) * 10 ** torch.randn(p.shape, generator=draw).to(p)
    conv = parameters[4]
    conv.grad = torch.randn(SHAPES[4], generator=draw).to(memory_format=torch.channels_last)  # not contiguous
    return [*parameters, nn.Parameter(torch.zeros(3))]  # the last has no gradient


def sum_at_once(parameters: Sequence[nn.Parameter]) -> None:
    """One all-reduce per dtype, of a copy of all gradients."""
    grads = [p.grad for p in parameters if p.grad is not None]
    for dtype in dict.fromkeys(g.dtype for g in grads):
        some = [g for g in grads if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in some])
        dist.all_reduce(flat)
        for g, part in zip(some, flat.split([g.numel() for g in some])):
            g.copy_(part.view_as(g))


def one_rank(rank: int, path: str) -> None:
    """One of two ranks: sum gradients in both ways, and write whether they agree and what was exchanged."""
    folder = Path(path)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    gradient_sums.BUCKET = SMALL
    expected, parameters, calls = gradients(rank), gradients(rank), list[Any]()
    sum_at_once(expected)
    places, all_reduce = {p.grad.data_ptr() for p in parameters if p.grad is not None}, dist.all_reduce

    def watched(tensor: torch.Tensor, **options: Any) -> Any:
        calls.append({"bytes": tensor.nbytes, "in_place": tensor.data_ptr() in places, **options})
        return all_reduce(tensor, **options)

    dist.all_reduce = watched
    sum_gradients(parameters, World(rank, 2))
    same = all(a.grad is b.grad is None or torch.equal(a.grad, b.grad) for a, b in zip(expected, parameters))
    changed = any(not torch.equal(a.grad, b.grad) for a, b in zip(gradients(rank), parameters) if a.grad is not None)
    (folder / f"{rank}.json").write_text(json.dumps({"same": same, "changed": changed, "calls": calls}))
    dist.destroy_process_group()


def test_gradients_are_summed_in_buckets_bit_for_bit(tmp_path: Path) -> None:
    """Two numbers have one sum. No bucket is larger than the limit, unless it is a gradient itself."""
    program = f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]}\n"
    program += "import test_gradient_sums, torch.multiprocessing as mp\n"
    program += f"if __name__ == '__main__': mp.spawn(test_gradient_sums.one_rank, ({str(tmp_path)!r},), nprocs=2)"
    (tmp_path / "ranks.py").write_text(program)
    done = run([sys.executable, str(tmp_path / "ranks.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        facts = json.loads((tmp_path / f"{rank}.json").read_text())
        assert facts["same"]
        assert facts["changed"]
        assert len(facts["calls"]) > 3
        assert all(call["async_op"] for call in facts["calls"])
        assert all(call["bytes"] <= SMALL for call in facts["calls"] if not call["in_place"])
        assert max(call["bytes"] for call in facts["calls"]) == 4 * 1200


def test_buckets_hold_every_gradient_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_sums, "BUCKET", SMALL)
    grads = [p.grad for p in gradients(0) if p.grad is not None]
    parts = list(buckets(grads))
    assert sorted(id(g) for part in parts for g in part) == sorted(map(id, grads))
    assert all(len({g.dtype for g in part}) == 1 for part in parts)
    assert all(len(part) == 1 or sum(g.nbytes for g in part) <= SMALL for part in parts)
    assert list(buckets([])) == []
