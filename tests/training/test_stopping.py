"""Signals end a run at the next step, in a validation at once, and before the first step without a trace."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clearformer.checkpoint import load_tensors
from clearformer.errors import Interrupted, Stopped
from clearformer.signals import SIGNALS
from clearformer.training.interrupt import noted, stoppable

from .test_loop import ToySteps, assert_same_run, peak, stopping, trainer


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_saves_after_the_step_and_keeps_its_number(tmp_path, number):
    trainer(tmp_path / "straight").train(ToySteps())
    first = trainer(tmp_path / "broken", stopping(17, lambda: send(number)))
    with pytest.raises(Interrupted) as ending:
        first.train(ToySteps())
    assert ending.value.number == number
    second = trainer(tmp_path / "broken")
    second.resume()
    assert second.progress.step == 9
    second.train(ToySteps())
    assert_same_run(tmp_path / "straight", tmp_path / "broken")


def test_a_signal_that_comes_twice_does_not_interrupt_the_saving(tmp_path):
    """A launcher and a scheduler may both send SIGTERM."""
    toy = trainer(tmp_path, stopping(17, lambda: (send(signal.SIGTERM), send(signal.SIGTERM))))
    with pytest.raises(Interrupted):
        toy.train(ToySteps())
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == 9


@pytest.mark.parametrize("step", [5, 10, 19])
def test_a_signal_ends_a_validation_which_follows_when_resumed(tmp_path, step):
    """The third module of the validation is never computed; the resumed run has all metrics, once."""
    computed = []

    def validate(model, at):
        for _ in range(3):
            computed.append(at)
            if at == step and len(computed) >= 3 * (1 + [5, 10, 15, 19].index(step)) - 1:
                send(signal.SIGTERM)
            model(torch.ones(2, 5))
        return peak(model, at)

    trainer(tmp_path / "straight").train(ToySteps())
    first = trainer(tmp_path / "broken", validate=validate)
    with pytest.raises(Interrupted) as ending:
        first.train(ToySteps())
    assert (ending.value.number, computed.count(step)) == (signal.SIGTERM, 2)
    assert (first.progress.step, first.progress.judged) == (step, {5: 0, 10: 5, 19: 15}[step])
    second = trainer(tmp_path / "broken")
    second.resume()
    second.train(ToySteps())
    assert_same_run(tmp_path / "straight", tmp_path / "broken")


def test_a_signal_before_a_validation_leaves_it_for_later(tmp_path):
    trainer(tmp_path / "straight", patience=1).train(ToySteps())
    first = trainer(tmp_path / "broken", stopping(29, lambda: send(signal.SIGHUP)), patience=1)
    with pytest.raises(Interrupted):
        first.train(ToySteps())
    assert (first.progress.step, first.progress.judged) == (15, 10)
    second = trainer(tmp_path / "broken", patience=1)
    second.resume()
    assert second.train(ToySteps()).step == 15  # the validation that was left out ends the run
    assert_same_run(tmp_path / "straight", tmp_path / "broken")


def test_a_step_that_compiles_is_not_waited_for(tmp_path):
    toy = trainer(tmp_path, stopping(1, lambda: send(signal.SIGTERM)))
    toy.finishes_step = False
    with pytest.raises(Stopped) as ending:
        toy.train(ToySteps())
    assert ending.value.number == signal.SIGTERM
    assert not (tmp_path / "last.safetensors").exists()


def test_saves_by_time(tmp_path, monkeypatch):
    """Each step takes a minute by this clock: with save_minutes = 2.5, every third step is saved."""
    clock, saved = [0.0], []
    monkeypatch.setattr("clearformer.training.loop.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def slowly(model, batch):
        clock[0] += 30  # two micro-batches per step
        return model(batch.x).square().sum(), len(batch.x)

    toy = trainer(tmp_path, slowly, save_every=1000, save_minutes=2.5, validate_every=1000, log_every=1000)
    save = toy.begin_save
    toy.begin_save = lambda: (saved.append(toy.progress.step), save())
    toy.train(ToySteps())
    assert saved == [3, 6, 9, 12, 15, 18, 19]


def test_ignored_signals_stay_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        for context in (noted, stoppable):
            with context():
                assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
                assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert all(signal.getsignal(number) is not signal.SIG_IGN for number in SIGNALS)


CODE = """
import time
from clearformer.tasks.translation import TranslationTask
def forever(task):
    open("preparing", "w").close()
    time.sleep(60)
TranslationTask.store = forever
from clearformer.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_preparing_ends_at_once_and_the_command_can_be_repeated(tmp_path: Path, number: int) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"a b {i}\tc d {i}\n" for i in range(40)))
    command = ["train", "--pairs", "pairs.tsv", "--out", "run", "--device", "cpu", "--steps", "2", "--set"]
    command += ["model.d_model=8"]
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *command], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    while not (tmp_path / "preparing").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    said = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "last.safetensors").exists()
    again = subprocess.run(
        [sys.executable, "-m", "clearformer", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("context", [stoppable, lambda: noted(lambda: False)])
def test_an_error_that_follows_a_signal_is_the_signal(context):
    """pydantic's Rust code, for one, replaces the exception of a signal by an error of its own."""

    def build():
        try:
            send(signal.SIGTERM)
        except Stopped:
            raise TypeError("Error building a serializer: Stopped: 15") from None

    with pytest.raises(Stopped) as ending, context():
        build()
    assert ending.value.number == signal.SIGTERM
    with pytest.raises(TypeError, match="of the run"), context():
        raise TypeError("of the run")


def test_a_run_that_is_saved_after_a_signal_says_so():
    def train(note):
        send(signal.SIGTERM)
        raise Interrupted(note[0])

    with pytest.raises(Interrupted), noted(lambda: True) as note:
        train(note)
