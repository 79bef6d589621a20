"""The same command, started again by a launcher, continues the run; the bits are those of a run left in peace."""

import os
import random
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.checkpoint import load_tensors
from clearformer.errors import CheckpointError, ConfigError

SMALL = ["model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=16", "model.d_ff=16", "model.n_heads=2"]
SHORT = ["train.validate_every=8", "train.save_every=4", "train.log_every=4", "train.tokens=64", "decode.beam=1"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, path = random.Random(3), tmp_path_factory.mktemp("restarts") / "pairs.tsv"
    lines = [" ".join(draw.choices(["ab", "cd", "efg", "hi"], k=draw.randint(2, 6))) for _ in range(300)]
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return path


def arguments(pairs: Path, out: Path | None, **more) -> dict:
    settings = ["text.kind=char", "train.metric=loss", *SMALL, *SHORT, *more.pop("settings", [])]
    return {"pairs": pairs, "out": out, "steps": 12, "device": "cpu", "settings": settings, **more}


@pytest.fixture
def peace(pairs: Path, tmp_path: Path) -> Path:
    clearformer.train(**arguments(pairs, tmp_path / "peace"))
    return tmp_path / "peace"


def half(pairs: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run, ended after step 7, with a checkpoint of step 4 or 7."""
    session = clearformer.start_run(**arguments(pairs, out))
    for step in session:
        if step.number == 7:
            break
    session.close()


def assert_same_weights(one: Path, two: Path) -> None:
    for name in ("last.safetensors", "model.safetensors"):
        a, b = load_tensors(one / name)[0], load_tensors(two / name)[0]
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TORCHELASTIC_RESTART_COUNT", "1"), ("SLURM_RESTART_COUNT", "2"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")],
)
def test_the_same_command_continues(pairs, peace, tmp_path, monkeypatch, capsys, name, value):
    half(pairs, tmp_path / "run", monkeypatch)
    monkeypatch.setenv(name, value)
    capsys.readouterr()
    clearformer.train(**arguments(pairs, tmp_path / "run"))
    assert "resumed at step 7 of 12" in capsys.readouterr().err
    assert_same_weights(peace, tmp_path / "run")


def test_without_a_launcher_the_folder_is_refused_unless_asked_for(pairs, peace, tmp_path, monkeypatch):
    half(pairs, tmp_path / "run", monkeypatch)
    with pytest.raises(CheckpointError, match="already contains a run"):
        clearformer.train(**arguments(pairs, tmp_path / "run"))
    clearformer.train(**arguments(pairs, tmp_path / "run", settings=["train.resume=always"]))
    assert_same_weights(peace, tmp_path / "run")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with pytest.raises(CheckpointError, match="already contains a run"):
        clearformer.train(**arguments(pairs, tmp_path / "run", settings=["train.resume=never"]))


def test_another_recipe_is_refused_and_a_folder_is_needed(pairs, tmp_path, monkeypatch):
    half(pairs, tmp_path / "run", monkeypatch)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with pytest.raises(CheckpointError, match=r"started with train.seed = 0, and this command has train.seed = 5"):
        clearformer.train(**arguments(pairs, tmp_path / "run", seed=5))
    with pytest.raises(ConfigError, match="needs --out"):
        clearformer.train(**arguments(pairs, None))


def test_python_objects_match_by_their_description(pairs, tmp_path, monkeypatch):
    rows = [tuple(line.split("\t")) for line in pairs.read_text().splitlines()]
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    clearformer.train(**arguments(rows, tmp_path / "run"))
    before = load_tensors(tmp_path / "run" / "last.safetensors")[0]
    clearformer.train(**arguments(rows, tmp_path / "run"))
    after = load_tensors(tmp_path / "run" / "last.safetensors")[0]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_finetune_continues(pairs, tmp_path, monkeypatch, capsys):
    clearformer.train(**arguments(pairs, tmp_path / "base"))
    tune = {"model": tmp_path / "base", "pairs": pairs, "out": tmp_path / "tuned", "steps": 4, "device": "cpu"}
    clearformer.finetune(**tune)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    clearformer.finetune(**tune)
    assert "resumed at step 4 of 4" in capsys.readouterr().err


# --- several processes: benchmarks/restarts.py, with fewer kills


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return import_module("restarts")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ranks_are_killed_under_torchrun(tmp_path, harness):
    """Two ranks and three kills; benchmarks/restarts.py has twenty, and four ranks too."""
    harness.write_inputs(tmp_path, 80)
    harness.Launch(tmp_path, "peace", 2).finish(600)
    assert harness.kill_ranks(tmp_path, "killed", 2, kills=3, steps=80) > 0
    assert harness.are_equal(tmp_path / "peace", tmp_path / "killed")
    assert harness.left_over(tmp_path / "killed") == 0
    assert "refused" not in (tmp_path / "killed.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_ranks_become_two_and_the_batches_stay(tmp_path, harness):
    found = harness.fewer_ranks(tmp_path, kills=1, steps=40)
    assert found["largest_loss_difference"] < 1e-10


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rank_that_stops_is_noticed_and_the_run_goes_on(tmp_path, harness):
    """SIGSTOP: the process exists, but never answers. After train.timeout, torchrun starts both again."""
    harness.write_inputs(tmp_path, 800)  # long enough to be stopped in the middle on a busy machine
    harness.Launch(tmp_path, "peace", 2).finish(300)
    launch = harness.Launch(tmp_path, "stopped", 2, "--set", "train.timeout=5")
    assert launch.wait(lambda: (tmp_path / "stopped" / "last.safetensors").exists())
    os.kill(launch.workers()[1], signal.SIGSTOP)
    launch.finish(400)
    assert "has not answered for 5 s" in (tmp_path / "stopped.log").read_text()
    assert harness.are_equal(tmp_path / "peace", tmp_path / "stopped")


@pytest.mark.parametrize("content", [b"", b"steps = = 1", b"a = " + b"[" * 10**5, b"\xff\xfe"])
def test_a_damaged_request_is_one_sentence(pairs, tmp_path, monkeypatch, content):
    half(pairs, tmp_path / "run", monkeypatch)
    (tmp_path / "run" / "requested.toml").write_bytes(content)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(CheckpointError) as error:
        clearformer.train(**arguments(pairs, tmp_path / "run"))
    assert error.value.hint
    assert "\n" not in error.value.message
