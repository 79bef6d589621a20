"""A rehearsed step: bytes that follow from the sizes, the real trainer's own code, and no memory."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from clearformer.data.batch import Batch, TextBatch
from clearformer.memory import resident_mb
from clearformer.planning import rehearsal
from clearformer.planning.clocks import Roofline, Stopwatch
from clearformer.planning.devices import Device
from clearformer.planning.ledger import Ledger, Record
from clearformer.planning.rehearsal import PARTS, build_trainer, rehearse
from clearformer.recipe import Recipe

SMALL = {"kind": "transformer", "d_model": 16, "d_ff": 32, "n_heads": 2, "source_vocab": 50, "target_vocab": 50}


def recipe(model: dict[str, Any] | None = None, **tables: Any) -> Recipe:
    return Recipe.parse({"data": {"train": {"path": "none"}}, "model": model or SMALL, **tables}, "test")


def step(batch: Any) -> Any:
    return [batch], batch.n_tokens


def test_the_parts_that_follow_from_the_number_of_parameters() -> None:
    done = rehearse(recipe(train={"ema": 0.9}), [step(Batch.blank(3, 5))])
    trainer = build_trainer(recipe(), torch.device("cpu"))
    n = sum(p.numel() for p in trainer.model.parameters())
    tables = sum(b.nbytes for b in trainer.model.buffers())
    parts = done.steps[0].parts
    assert done.n_parameters == done.n_trainable == n
    assert parts["weights"] == 4 * n + tables
    assert parts["average"] == 4 * n
    assert 8 * n <= parts["optimiser"] < 8 * n + 4096  # two moments, and a counter for each tensor
    assert set(parts) == set(PARTS)


def test_no_average_and_no_moments_without_them() -> None:
    done = rehearse(recipe(train={"ema": 0.0}, optim={"kind": "sgd"}), [step(Batch.blank(3, 5))])
    assert done.steps[0].parts["average"] == 0
    assert done.steps[0].parts["optimiser"] == 0


def test_activations_grow_with_the_batch_and_shrink_when_they_are_recomputed() -> None:
    one, two = (rehearse(recipe(), [step(Batch.blank(n, 32))]).steps[0].parts["activations"] for n in (16, 32))
    assert 1.8 < two / one < 2.1
    again = rehearse(recipe(train={"recompute": "blocks"}), [step(Batch.blank(32, 32))])
    assert again.steps[0].parts["activations"] < 0.7 * two


def test_accumulation_keeps_the_gradients_but_only_one_micro_batch() -> None:
    whole = rehearse(recipe(), [step(Batch.blank(32, 32))]).steps[0]
    halves = rehearse(recipe(), [([Batch.blank(16, 32)] * 2, 1024)]).steps[0]
    assert halves.parts["activations"] < 0.7 * whole.parts["activations"]
    assert halves.flops == whole.flops


def test_bfloat16_halves_most_activations() -> None:
    full = rehearse(recipe(), [step(Batch.blank(64, 32))]).steps[0].parts["activations"]
    half = rehearse(recipe(train={"precision": "bfloat16"}), [step(Batch.blank(64, 32))]).steps[0].parts["activations"]
    assert half < 0.8 * full


def test_a_model_that_fits_no_machine_takes_no_memory() -> None:
    before = resident_mb()
    text = {"data": {"train": {"path": "none"}, "length": 2048}, "model": {"preset": "gpt3-175b"}}
    done = rehearse(Recipe.parse(text, "test"), [step(TextBatch.blank(1, 2048))])
    assert 174e9 < done.n_parameters < 176e9
    assert done.steps[0].parts["weights"] > 6.9e11
    assert resident_mb() - before < 1000


def test_the_flops_of_a_product() -> None:
    with FakeTensorMode(), Ledger() as ledger:
        a = torch.empty(3, 5) @ torch.empty(5, 7)
        del a
    (call,) = [call for call in ledger.known.values() if "mm" in call.key]
    assert call.flops == 2 * 3 * 5 * 7
    assert call.n_bytes == 4 * (15 + 35 + 21)
    slow = Device("slow", "", 1.0, memory_gb_per_s=1e-6, matmul_tflops=1e3, launch_us=0.0)
    assert Roofline(slow).seconds(call) == pytest.approx(4 * 71 / 1e3)


@pytest.mark.parametrize("T", [1, 5, 11, 37])
def test_the_workspace_of_a_recurrent_layer_is_that_of_the_real_one(T: int) -> None:
    """torch's fake kernel says that it is empty, although it is larger than all other activations."""

    def workspace() -> int:
        cell = torch.nn.LSTM(7, 13, batch_first=True)
        with Ledger() as ledger:
            result = cell(torch.empty(5, T, 7))  # noqa: F841  (until the end of the block, its graph is alive)
        return max(ledger.sizes)

    real = workspace()
    with FakeTensorMode():
        assert workspace() == real


NETWORK = {"kind": "rnn-lm", "vocab": 50, "d_model": 13, "n_layers": 2}
NETWORKS = [({**NETWORK, "cell": cell}, TextBatch.blank(4, 6)) for cell in ("lstm", "gru", "rnn")]


@pytest.mark.parametrize(("model", "batch"), [(None, Batch.blank(4, 6)), *NETWORKS])
def test_every_operation_of_a_step_can_be_timed(model: dict[str, Any] | None, batch: Any) -> None:
    done = rehearse(recipe(model), [step(batch)]).steps[0]
    device = Device("cpu", "", 1.0, 1.0, 1.0, 1.0)

    class Refusing(Roofline):
        def seconds(self, call: Any) -> float:
            raise AssertionError(f"{call.key} was not measured")

    watch = Stopwatch(Refusing(device))
    assert watch.step(done) > 0
    assert len(watch.costs) == len(done.calls)


def test_nothing_of_a_step_is_kept_between_the_blocks_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's fake mode keeps every constant. In a rehearsal on glibc, free memory on their two sides did not join."""
    modes: list[FakeTensorMode] = []

    class Mode(FakeTensorMode):
        def __init__(self) -> None:
            super().__init__()
            modes.append(self)

    monkeypatch.setattr(rehearsal, "FakeTensorMode", Mode)
    rehearse(recipe(), [step(Batch.blank(3, 5))] * 3)
    (mode,) = modes
    assert not mode.fake_tensor_converter.constant_storage_mapping


def test_a_watched_rehearsal_keeps_no_records() -> None:
    seen: list[Record] = []
    steps = [step(Batch.blank(3, 5))]
    assert rehearse(recipe(), steps, watch=seen.append).records == []
    assert len(seen) == len(rehearse(recipe(), steps).records) > 100
