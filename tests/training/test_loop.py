"""The loop on a toy: a linear model with dropout, whose batches are drawn from (epoch, position)."""

import json
import os
import signal
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.errors import CheckpointError, Interrupted, Paused, TrainingError
from clearformer.metric import LOSS, Metric
from clearformer.training.budget import length
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.precision import reseed
from clearformer.training.progress import Progress
from clearformer.training.schedules import ScheduleConfig

CPU = torch.device("cpu")
CONFIG = TrainConfig(steps=19, accumulation=2, log_every=3, validate_every=5, save_every=7, ema=0.9)
SCORE = Metric("score", "Score")


@dataclass(frozen=True)
class Rows:
    x: Tensor

    def to(self, device, non_blocking=False):
        return self


class ToySteps:
    group = 2

    def count(self, epoch):
        return 4

    def load(self, epoch, position, world):
        draw = torch.Generator().manual_seed(1000 * epoch + position)
        return [Rows(torch.randn(3, 5, generator=draw)) for _ in range(self.group)], 6


def squares(model, batch):
    return model(batch.x).square().sum(), len(batch.x)


def peak(model, step):
    """Best at step 10, whatever the model."""
    return {"score": -abs(step - 10.0), "loss": float(sum(p.detach().sum() for p in model.parameters()))}


def trainer(folder, objective=squares, validate=peak, kind="adam", lr=1e-2, metric=SCORE, **changes) -> Trainer:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.3), nn.Linear(7, 2))
    optimizer = OptimConfig(kind=kind, lr=lr).build(model)
    config = CONFIG.changed(**changes)
    parts = (model, objective, optimizer, ScheduleConfig(warmup=4), config, RunFolder(folder), CPU, World())
    return Trainer(*parts, validate, metric=metric)


def without_time(value):
    """Facts or metrics with everything that a clock decides left out."""
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if k not in ("seconds", "tokens_per_s")}
    return [without_time(v) for v in value] if isinstance(value, list) else value


def assert_same_run(one, two):
    for name in ("last.safetensors", "model.safetensors"):
        (a, facts_a), (b, facts_b) = load_tensors(one / name), load_tensors(two / name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
        assert without_time(facts_a) == without_time(facts_b)
    assert without_time(read_metrics(one / "metrics.jsonl")) == without_time(read_metrics(two / "metrics.jsonl"))


class Stop(Exception):
    pass


def stopping(at, error):
    """The objective, which at the given call does something rash: half a step is behind it at every odd call."""
    calls = 0

    def objective(model, batch):
        nonlocal calls
        calls += 1
        if calls == at:
            error()
        return squares(model, batch)

    return objective


def fall():
    raise Stop


@pytest.mark.parametrize("kind", ["adam", "momentum", "adagrad", "sgd"])
def test_falls_and_resumes_bit_for_bit(tmp_path, kind):
    trainer(tmp_path / "straight", kind=kind).train(ToySteps())
    state = torch.get_rng_state()
    resumed = trainer(tmp_path / "broken", kind=kind)
    for call in (18, 8, 20):  # between the two micro-batches of step 9, of 11 and of 17
        resumed.objective = stopping(call, fall)
        with pytest.raises(Stop):
            resumed.train(ToySteps())
        resumed = trainer(tmp_path / "broken", kind=kind)
        resumed.resume()
    resumed.train(ToySteps())
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_run(tmp_path / "straight", tmp_path / "broken")


class Remembering:
    """An objective whose loss depends on all batches so far, by a sum for each of a step's two micro-batches."""

    def __init__(self):
        self.carried, self.calls = {}, 0

    def __call__(self, model, batch):
        n, self.calls = self.calls % 2, self.calls + 1
        before = self.carried.get(n, torch.zeros(()))
        self.carried[n] = before + batch.x.sum()
        return (model(batch.x) + before).square().sum(), len(batch.x)


def test_what_an_objective_carries_along_is_resumed(tmp_path):
    def remembering(folder):
        made = trainer(folder, Remembering())
        made.carried = made.objective.carried
        return made

    remembering(tmp_path / "straight").train(ToySteps())
    broken = remembering(tmp_path / "broken")
    broken.config = broken.config.changed(steps=7)
    broken.train(ToySteps())
    resumed = remembering(tmp_path / "broken")
    resumed.resume()
    assert {n: state.item() for n, state in resumed.objective.carried.items()} == {
        n: state.item() for n, state in broken.objective.carried.items()
    }
    resumed.train(ToySteps())
    ours, theirs = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("straight", "broken"))
    assert {"carried.0", "carried.1"} < ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_rank_takes_up_what_its_own_micro_batches_carried(tmp_path):
    first = trainer(tmp_path, steps=1)
    first.carried = {0: torch.tensor([3.0]), 1: torch.tensor([5.0])}
    first.save()
    second = trainer(tmp_path)
    second.world = World(1, 2)
    second.resume()
    assert second.carried == {1: torch.tensor([5.0])}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_step_saves_and_leaves_no_trace(tmp_path, number):
    trainer(tmp_path / "straight").train(ToySteps())
    first = trainer(tmp_path / "broken", stopping(17, lambda: os.kill(os.getpid(), number)))
    with pytest.raises(Interrupted):
        first.train(ToySteps())
    assert first.progress.step == 9
    second = trainer(tmp_path / "broken")
    second.resume()
    assert second.progress.step == 9
    second.train(ToySteps())
    assert_same_run(tmp_path / "straight", tmp_path / "broken")


def test_a_run_pauses_and_is_resumed_without_a_trace(tmp_path):
    trainer(tmp_path / "straight").train(ToySteps())
    for pause in (7, 12, None):
        part = trainer(tmp_path / "paused", pause=pause)
        if pause != 7:
            part.resume()
        if pause is None:
            part.train(ToySteps())
        else:
            with pytest.raises(Paused):
                part.train(ToySteps())
            assert part.progress.step == pause
    assert_same_run(tmp_path / "straight", tmp_path / "paused")


def test_a_pause_at_the_last_step_is_none(tmp_path):
    assert trainer(tmp_path, pause=19).train(ToySteps()).step == 19


def test_second_ctrl_c_stops_at_once(tmp_path):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, stopping(17, twice)).train(ToySteps())
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == 7
    assert not list(tmp_path.glob(".*"))


def test_signals_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    trainer(tmp_path).train(ToySteps())
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_metrics_have_every_point_once(tmp_path):
    trainer(tmp_path).train(ToySteps())
    lines = [(line["step"], line["kind"]) for line in read_metrics(tmp_path / "metrics.jsonl")]
    train = [(step, "train") for step in (3, 6, 9, 12, 15, 18, 19)]
    valid = [(step, "valid") for step in (5, 10, 15, 19)]
    assert lines == sorted([*train, *valid])


def test_a_finished_run_is_left_as_it_is(tmp_path):
    trainer(tmp_path).train(ToySteps())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = trainer(tmp_path)
    again.resume()
    assert again.train(ToySteps()).step == 19
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_more_steps_go_on_further(tmp_path):
    trainer(tmp_path / "short", steps=14, validate_every=7, log_every=7).train(ToySteps())
    longer = trainer(tmp_path / "short", steps=21, validate_every=7, log_every=7)
    longer.resume()
    longer.train(ToySteps())
    trainer(tmp_path / "straight", steps=21, validate_every=7, log_every=7).train(ToySteps())
    assert_same_run(tmp_path / "short", tmp_path / "straight")


def test_patience_stops_and_a_resumed_run_stays_stopped(tmp_path):
    """Best at 10; worse at 15 and 20."""
    progress = trainer(tmp_path, steps=40, patience=2).train(ToySteps())
    assert (progress.step, progress.best_step, progress.stale) == (20, 10, 2)
    again = trainer(tmp_path, steps=40, patience=2)
    again.resume()
    assert again.train(ToySteps()).step == 20
    patient = trainer(tmp_path, steps=40, patience=3)
    patient.resume()
    assert patient.train(ToySteps()).step == 25


def test_best_weights_are_the_averaged_ones_of_the_best_step(tmp_path):
    toy = trainer(tmp_path, steps=10)
    toy.train(ToySteps())
    kept, facts = load_tensors(tmp_path / "model.safetensors")
    assert facts == {"step": 10, "scores": toy.progress.scores}
    assert all(torch.equal(kept[name], tensor) for name, tensor in toy.average.weights.items())
    trainer(tmp_path / "longer").train(ToySteps())
    assert load_tensors(tmp_path / "longer" / "model.safetensors")[1]["step"] == 10


def test_a_budget_of_tokens_ends_a_training_like_its_last_step(tmp_path):
    """6 tokens a step: the ninth reaches 50. It is validated and saved, and resuming adds nothing."""
    toy = trainer(tmp_path, max_tokens=50)
    assert toy.train(ToySteps()).step == 9
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["kind"] == "valid"] == [5, 9]
    again = trainer(tmp_path, max_tokens=50)
    again.resume()
    assert again.train(ToySteps()).step == 9


def test_a_budget_of_seconds_ends_a_training_like_its_last_step(tmp_path, monkeypatch):
    """A clock that gains a second whenever it is read: somewhere before step 19 it is over."""
    now = iter(range(1000))
    monkeypatch.setattr("clearformer.training.loop.time", SimpleNamespace(monotonic=lambda: float(next(now))))
    progress = trainer(tmp_path, max_seconds=8.5).train(ToySteps())
    assert 2 < progress.step < 19
    metrics = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["kind"] == "valid"]
    assert metrics[-1]["step"] == progress.step
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == progress.step


def test_what_is_due_does_not_depend_on_the_clock_of_a_rank(tmp_path, monkeypatch):
    """A validation takes longer than the run may. Its rank saves with the next step, when all agree on the time."""
    toy = trainer(tmp_path, validate=lambda model, step: {"score": slow(toy)}, max_seconds=1000, save_every=100)
    saved, begin_save = [], toy.begin_save
    monkeypatch.setattr(toy, "begin_save", lambda: (saved.append(toy.progress.step), begin_save()))
    assert toy.train(ToySteps()).step == 6
    assert saved == [6]


def slow(toy):
    toy.clock -= 2000
    return 0.0


@pytest.mark.parametrize("validate", [peak, None])
@pytest.mark.parametrize("budget", [{"max_tokens": 24}, {"max_seconds": 1e-9}, {"steps": 4}])
def test_a_budget_that_was_spent_before_any_validation_is_judged_when_resumed(tmp_path, budget, validate):
    """It fell in step 5, before the first one, and the budget is now less than was used."""
    broken = trainer(tmp_path, stopping(10, fall), validate, save_every=4)
    with pytest.raises(Stop):
        broken.train(ToySteps())
    resumed = trainer(tmp_path, validate=validate, **budget)
    resumed.resume()
    progress = resumed.train(ToySteps())
    assert (progress.step, progress.scores.get("score")) == (4, None if validate is None else -6.0)
    kept, facts = load_tensors(tmp_path / "model.safetensors")
    assert facts["step"] == 4
    assert all(torch.equal(kept[name], tensor) for name, tensor in resumed.average.weights.items())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = trainer(tmp_path, validate=validate, **budget)
    again.resume()
    again.train(ToySteps())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_budget_in_words():
    assert TrainConfig(steps=3000).budget() == "3,000 steps"
    assert TrainConfig(max_tokens=50_000, max_seconds=7.5).budget() == "7.5 s or 50,000 tokens"
    assert TrainConfig(max_tokens=50_000).budget("images") == "50,000 images"


def test_a_schedule_arrives_when_the_budget_does(tmp_path):
    """Linear to 0 over the tokens: at 4 of 9 steps' worth, 5/9 are left. Whatever ends first decides."""
    toy = trainer(tmp_path, max_tokens=54)
    toy.schedule = ScheduleConfig(kind="linear", warmup=0)
    toy.progress.step, toy.progress.tokens = 4, 24
    assert length(toy.progress, toy.config) == 9
    assert toy.rate(4) == pytest.approx(1e-2 * 5 / 9)
    toy.progress.seconds = 2.0
    toy.config = toy.config.changed(max_seconds=4.0)
    assert length(toy.progress, toy.config) == 8
    assert length(Progress(), trainer(tmp_path).config) == 19


def by_table(losses):
    return lambda model, step: {"loss": losses[step]}


def test_lower_loss_is_better(tmp_path):
    losses = {5: 3.0, 10: 2.0, 15: 2.5, 19: 2.0}
    progress = trainer(tmp_path, validate=by_table(losses), metric=LOSS).train(ToySteps())
    assert (progress.best_step, progress.stale, progress.scores) == (10, 2, {"loss": 2.0})


def test_the_best_loss_is_stored_negated_and_resumed_so(tmp_path):
    """As in run folders of every version: 3.0 at step 5 is stored as -3.0, and 2.5 at step 10 beats it."""
    trainer(tmp_path, validate=by_table({5: 3.0, 7: 3.5}), metric=LOSS, steps=7).train(ToySteps())
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["best"] == -3.0
    resumed = trainer(tmp_path, validate=by_table({10: 2.5, 15: 2.75, 19: 2.5}), metric=LOSS)
    resumed.resume()
    progress = resumed.train(ToySteps())
    assert (progress.best, progress.best_step, progress.stale) == (-2.5, 10, 2)


def test_without_validation_the_last_weights_are_kept(tmp_path):
    toy = trainer(tmp_path, validate=None, ema=0.0)
    toy.train(ToySteps())
    kept, _ = load_tensors(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[name], p) for name, p in toy.model.named_parameters())


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_loss_that_is_no_number_stops_before_anything_is_saved(tmp_path, log_every):
    """From step 10 on; the checkpoint of step 7 stays the last one, however rarely we log."""
    calls = 0

    def objective(model, batch):
        nonlocal calls
        calls += 1
        total, count = squares(model, batch)
        return total * (float("nan") if calls > 18 else 1.0), count

    with pytest.raises(TrainingError, match=r"not a finite number.*\nhint: .*optim.lr"):
        trainer(tmp_path, objective, validate_every=100, log_every=log_every).train(ToySteps())
    tensors, facts = load_tensors(tmp_path / "last.safetensors")
    assert facts["progress"]["step"] == 7
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert "NaN" not in line


GOOD = "model.safetensors and last.safetensors contain the last good checkpoint"


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


@pytest.mark.parametrize("metric", [LOSS, SCORE])
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_validation_that_is_no_number_leaves_the_files_of_the_one_before(tmp_path, metric, bad, ema):
    """The first validation, at step 5, saves good weights; the second says NaN, in the loss, or in what decides."""
    values = {5: 2.0, 10: float(bad)}
    toy = trainer(tmp_path, validate=lambda model, step: {metric.name: values[step]}, metric=metric, ema=ema)
    toy.config = toy.config.changed(save_every=5)
    before = {}

    def objective(model, batch):
        if toy.progress.step == 6 and not before:
            before.update(files(tmp_path))
        return squares(model, batch)

    toy.objective = objective
    with pytest.raises(TrainingError, match=rf"the validation {metric.name} .* at step 10; {GOOD}\nhint: .*optim\.lr"):
        toy.train(ToySteps())
    assert before.keys() == {"model.safetensors", "last.safetensors"}
    assert files(tmp_path) == before
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    assert "Infinity" not in (tmp_path / "metrics.jsonl").read_text()


def test_a_first_validation_that_is_no_number_saves_nothing_and_claims_nothing(tmp_path):
    toy = trainer(tmp_path, validate=by_table({5: float("nan")}), metric=LOSS, ema=0.0)
    with pytest.raises(TrainingError, match=r"the validation loss .* at step 5; no checkpoint has been saved"):
        toy.train(ToySteps())
    assert files(tmp_path) == {}


def test_a_loss_that_is_no_number_is_refused_though_another_score_decides(tmp_path):
    """BLEU of broken weights is 0, a number like any other."""
    toy = trainer(tmp_path, validate=lambda model, step: {"score": 0.0, "loss": float("nan")})
    with pytest.raises(TrainingError, match="the validation loss"):
        toy.train(ToySteps())


def test_a_side_score_may_be_no_number(tmp_path):
    """The correlation with a constant, say."""
    progress = trainer(
        tmp_path, validate=lambda model, step: {"score": 1.0, "pearson": float("nan")}, validate_every=19
    ).train(ToySteps())
    assert progress.step == 19


def test_a_resumed_run_recovers_from_a_best_that_is_no_number(tmp_path):
    """As earlier versions stored it: the next finite validation is the best."""
    toy = trainer(tmp_path, validate=by_table({10: 2.0, 15: 3.0, 19: 3.0}), metric=LOSS)
    toy.progress.best, toy.progress.scores = float("nan"), {"loss": float("nan")}
    toy.progress.step = toy.progress.judged = 5
    toy.save()
    toy.resume()
    assert toy.train(ToySteps()).best_step == 10


def exploding(toy, at):
    """A trainer whose update `at` makes one weight infinite, after its loss was found good."""
    update = toy.optimizer.step

    def step():
        update()
        if toy.progress.step == at:
            with torch.no_grad():
                toy.parameters[-1][0] = float("inf")

    toy.optimizer.step = step
    return toy


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_weights_that_are_no_numbers_are_not_saved(tmp_path, ema):
    """By the update of step 14, right before a save; that of step 7 stays."""
    toy = exploding(trainer(tmp_path, validate_every=7, ema=ema), 14)
    with pytest.raises(TrainingError, match=f"a weight is not a finite number at step 14; {GOOD}"):
        toy.train(ToySteps())
    for name in ("last.safetensors", "model.safetensors"):
        tensors, facts = load_tensors(tmp_path / name)
        assert facts.get("progress", facts)["step"] == 7
        assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_weights_that_are_no_numbers_are_not_saved_between_validations(tmp_path):
    toy = exploding(trainer(tmp_path, validate_every=100, ema=0.0), 14)
    with pytest.raises(TrainingError, match=r"at step 14; last\.safetensors contains the last good checkpoint"):
        toy.train(ToySteps())
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == 7


def test_weights_that_are_no_numbers_are_not_kept_without_validation(tmp_path):
    toy = exploding(trainer(tmp_path, validate=None, ema=0.0), 10)
    with pytest.raises(TrainingError, match="a weight"):
        toy.train(ToySteps())
    assert load_tensors(tmp_path / "model.safetensors")[1]["step"] == 5


def test_clipping_bounds_the_step_and_reports_the_norm_before(tmp_path):
    toy = trainer(tmp_path, kind="sgd", lr=1.0, clip=1e-3, ema=0.0)
    before = torch.cat([p.detach().flatten().clone() for p in toy.model.parameters()])
    toy.step(*ToySteps().load(0, 0, World()))
    norm = toy.meter.sums[1]
    moved = (torch.cat([p.detach().flatten() for p in toy.model.parameters()]) - before).norm().item()
    assert norm.item() > 0.1
    assert moved == pytest.approx(1e-3 * toy.rate(1), rel=1e-2)


def test_each_rank_and_step_has_its_own_randomness(tmp_path):
    draws = set()
    for rank in (0, 1):
        toy = trainer(tmp_path)
        toy.world = replace(toy.world, rank=rank)
        for _ in range(3):
            toy.step(*ToySteps().load(0, 0, World()))
            draws.add(torch.rand(()).item())
    assert len(draws) == 6


def test_average_switched_on_later_starts_from_the_weights_so_far(tmp_path):
    trainer(tmp_path, steps=7, ema=0.0).train(ToySteps())
    toy = trainer(tmp_path, ema=0.9)
    toy.resume()
    assert all(torch.equal(toy.average.weights[name], p) for name, p in toy.model.named_parameters())


def test_settings_come_from_the_recipe_not_from_the_checkpoint(tmp_path):
    trainer(tmp_path, steps=7, lr=1e-2).train(ToySteps())
    toy = trainer(tmp_path, lr=5e-2)
    toy.resume()
    assert toy.optimizer.defaults["lr"] == 5e-2
    assert toy.rate(8) == 5e-2 * toy.schedule.factor(8, 19)


def test_another_optimiser_is_refused(tmp_path):
    trainer(tmp_path, steps=7).train(ToySteps())
    with pytest.raises(CheckpointError, match="with Adam, not Adagrad"):
        trainer(tmp_path, kind="adagrad").resume()


def test_weights_alone_cannot_be_resumed(tmp_path):
    trainer(tmp_path, steps=7).train(ToySteps())
    (tmp_path / "model.safetensors").replace(tmp_path / "last.safetensors")
    with pytest.raises(CheckpointError, match="is not a checkpoint of a run"):
        trainer(tmp_path).resume()


def test_facts_are_plain_json(tmp_path):
    trainer(tmp_path, steps=7).train(ToySteps())
    facts = load_tensors(tmp_path / "last.safetensors")[1]
    assert json.loads(json.dumps(facts)) == facts
    assert set(facts) == {"progress", "meter", "optimizer"}


def test_a_step_is_seeded_as_torch_would_and_leaves_nothing_behind() -> None:
    torch.manual_seed(13)
    drawn, waiting = torch.rand(7), len(torch.cuda._queued_calls)
    reseed(13, torch.device("cpu"))
    assert torch.equal(torch.rand(7), drawn)
    assert len(torch.cuda._queued_calls) == waiting
