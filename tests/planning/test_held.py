"""What the allocator of a CPU holds: the most of a few rehearsals, and a share of their holes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from clearformer.data.batch import Batch
from clearformer.planning import estimate
from clearformer.planning.clocks import Roofline
from clearformer.planning.devices import Device, find_device
from clearformer.planning.estimate import HOLES, Target, held, largest_of
from clearformer.planning.heap import Glibc
from clearformer.planning.ledger import Event, Record
from clearformer.planning.rehearsal import Rehearsal, rehearse
from clearformer.recipe import Recipe

MB = 2**20
CPU = Roofline(Device("cpu", "", 1.0, 1.0, 1.0, 1.0))
SMALL = {"kind": "transformer", "d_model": 16, "d_ff": 32, "n_heads": 2, "source_vocab": 50, "target_vocab": 50}


@pytest.fixture(scope="module")
def done() -> Rehearsal:
    batch = Batch.blank(3, 5)
    return rehearse(
        Recipe.parse({"data": {"train": {"path": "none"}}, "model": SMALL}, "test"), [([batch], batch.n_tokens)]
    )


def rehearsals(sizes: list[int]) -> Callable[..., Any]:
    """A rehearsal that allocates a block, of another size each time; `sizes` has those that are left."""

    def rehearse_again(watch: Callable[[Record], None]) -> None:
        watch(Event(0, sizes.pop(0)))
        watch(Event(0, -1))

    return rehearse_again


@pytest.mark.skipif(not Glibc.is_here(), reason="needs glibc")
def test_the_most_of_a_few_rehearsals(done: Rehearsal) -> None:
    sizes, live = [30 * MB, 70 * MB, 50 * MB, 900 * MB], largest_of(done).peak
    assert held(done, rehearsals(sizes), CPU) == pytest.approx(live + HOLES * (70 * MB - live), rel=1e-3)
    assert sizes == [900 * MB]


@pytest.mark.skipif(not Glibc.is_here(), reason="needs glibc")
def test_no_other_rehearsal_is_begun_when_they_take_long(done: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "PATIENCE", 0.0)
    sizes = [30 * MB, 70 * MB]
    held(done, rehearsals(sizes), CPU)
    assert sizes == [70 * MB]


def test_without_glibc_a_model_of_it_replays_what_was_recorded(
    done: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Glibc, "is_here", lambda: False)
    block = 10 * largest_of(done).peak
    longer = replace(done, records=[*done.records, Event(10**6, block)])
    assert held(longer, rehearsals([]), CPU) > block > held(done, rehearsals([]), CPU)


def test_what_reading_the_data_leaves_counts_on_the_cpu() -> None:
    target = Target(replace(CPU.device, process_mb=300.0), 1, CPU)
    assert target.beside(17.5).device.process_mb == 317.5
    assert target.torch_device == torch.device("cpu")
    gpu = Target(find_device("h100"), 1, CPU)
    assert gpu.beside(17.5) == gpu
