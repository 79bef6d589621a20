"""A run driven by the caller: the same bits as `train`, and nothing lost when the caller stops."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import clearformer
from clearformer.checkpoint import load_tensors
from clearformer.errors import ConfigError, Interrupted
from clearformer.training.journal import read_metrics

SETTINGS = {
    "text.kind": "char",
    "model": {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 14, "d_ff": 23, "n_heads": 7},
    "train": {"tokens": 128, "log_every": 3, "validate_every": 4, "save_every": 5},
    "evaluate.max_validation": 3,
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    draw = random.Random(5)
    words = ["".join(draw.choices("abcde", k=draw.randint(2, 4))) for _ in range(61)]
    path.write_text("".join(f"{word}{i}\t{word[::-1]}{i}\n" for i, word in enumerate(words)))
    return path


def arguments(pairs: Path, out: Path) -> dict:
    return {"pairs": str(pairs), "out": out, "settings": SETTINGS, "steps": 11, "device": "cpu"}


@pytest.fixture(scope="module")
def straight(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "straight"
    clearformer.train(**arguments(pairs, out))
    return out


def without_time(value):
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if k not in ("seconds", "tokens_per_s")}
    return [without_time(v) for v in value] if isinstance(value, list) else value


def assert_same_run(one: Path, two: Path) -> None:
    for name in ("last.safetensors", "model.safetensors"):
        (a, facts_a), (b, facts_b) = load_tensors(one / name), load_tensors(two / name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
        assert without_time(facts_a) == without_time(facts_b)
    assert without_time(read_metrics(one / "metrics.jsonl")) == without_time(read_metrics(two / "metrics.jsonl"))


def test_driven_to_the_end_it_is_train(pairs, straight, tmp_path):
    session = clearformer.start_run(**arguments(pairs, tmp_path / "run"))
    steps = list(session)
    assert [step.number for step in steps] == list(range(1, 12))
    assert session.report is not None
    assert session.report["run"] == str(tmp_path / "run")
    assert_same_run(straight, tmp_path / "run")
    logged = [line for line in read_metrics(straight / "metrics.jsonl") if line["kind"] == "train"]
    first = sum(step.loss * step.tokens for step in steps[:3]) / sum(step.tokens for step in steps[:3])
    assert logged[0]["loss"] == pytest.approx(first, rel=1e-5)


def test_a_loop_that_breaks_is_resumed_without_a_trace(pairs, straight, tmp_path):
    with clearformer.start_run(**arguments(pairs, tmp_path / "run")) as session:
        for step in session:
            if step.number == 7:
                break
    assert load_tensors(tmp_path / "run" / "last.safetensors")[1]["progress"]["step"] == 7
    with pytest.raises(ConfigError, match="the session is closed\nhint: resume the run: clearformer train --resume"):
        session.save()
    clearformer.train(out=tmp_path / "run", resume=True, device="cpu")
    assert_same_run(straight, tmp_path / "run")


def test_an_exception_in_the_loop_saves_and_is_raised(pairs, tmp_path):
    def drive() -> None:
        with clearformer.start_run(**arguments(pairs, tmp_path / "run")) as session:
            for step in session:
                assert 1 / (step.number - 2)

    with pytest.raises(ZeroDivisionError):
        drive()
    assert load_tensors(tmp_path / "run" / "last.safetensors")[1]["progress"]["step"] == 2


def test_a_script_that_fails_without_a_with_block_saves(pairs, tmp_path):
    code = "import clearformer, sys; from tests_arguments import given\n"
    (tmp_path / "tests_arguments.py").write_text(f"given = {arguments(str(pairs), str(tmp_path / 'run'))!r}")
    code += "for step in clearformer.start_run(**given):\n    if step.number == 3: raise ValueError('mine')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(clearformer.__file__).parents[1]), "."])}
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "ValueError: mine" in ended.stderr
    assert load_tensors(tmp_path / "run" / "last.safetensors")[1]["progress"]["step"] == 3


def test_ctrl_c_within_a_step_finishes_it_and_saves(pairs, tmp_path):
    session = clearformer.start_run(**arguments(pairs, tmp_path / "run"))
    next(session)
    update = session.trainer.update

    def interrupted(*batches):
        os.kill(os.getpid(), signal.SIGINT)
        update(*batches)

    session.trainer.update = interrupted
    with pytest.raises(Interrupted):
        next(session)
    assert load_tensors(tmp_path / "run" / "last.safetensors")[1]["progress"]["step"] == 2


def test_validate_and_save_between_steps(pairs, straight, tmp_path):
    session = clearformer.start_run(**arguments(pairs, tmp_path / "run"))
    next(session)
    metrics = session.validate()
    assert session.validate() == metrics  # once
    session.save()
    assert load_tensors(tmp_path / "run" / "last.safetensors")[1]["progress"]["judged"] == 1
    session.finish()
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "valid"]
    assert [line["step"] for line in lines] == [1, 4, 8, 11]
    assert without_time(lines[1:]) == without_time(
        [line for line in read_metrics(straight / "metrics.jsonl") if line["kind"] == "valid"]
    )
