"""SIGTERM to torchrun, as a scheduler sends it: the run is saved, and goes on with the bits of one left in peace."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from clearformer.checkpoint import load_tensors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
STEPS = 300
SETTINGS = {
    "text.kind": "char", "train.metric": "loss", "train.tokens": 64, "train.log_every": 1, "train.validate_every": 1000,
    "train.save_every": 1000, "decode.beam": 1, "evaluate.max_validation": 4, "model.n_encoder_layers": 1,
    "model.n_decoder_layers": 1, "model.d_model": 16, "model.d_ff": 16, "model.n_heads": 2, "train.steps": STEPS,
}  # fmt: skip


def start(folder: Path, out: str, *more: str) -> "subprocess.Popen[bytes]":
    """Train on two ranks. Their messages go to OUT.log."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = ["train", *more, "--out", str(folder / out), "--device", "cpu"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    variables["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "600"
    with open(folder / f"{out}.log", "ab") as log:
        return subprocess.Popen([*launcher, "-m", "clearformer", *command], env=variables, stdout=log, stderr=log)


def finish(process: "subprocess.Popen[bytes]", folder: Path, out: str) -> int:
    code = process.wait(600)
    print((folder / f"{out}.log").read_text(errors="replace")[-3000:])  # shown if the test fails
    return code


def last_step(path: Path) -> int:
    lines = path.read_text().splitlines() if path.exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def test_a_run_that_torchrun_ends_is_saved_and_resumed(tmp_path: Path) -> None:
    draw = random.Random(3)
    lines = [" ".join(draw.choices(["ab", "cd", "efg", "hi"], k=draw.randint(2, 6))) for _ in range(300)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    given = ["--pairs", str(tmp_path / "pairs.tsv")]
    given += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    assert finish(start(tmp_path, "peace", *given), tmp_path, "peace") == 0

    process, run = start(tmp_path, "run", *given), tmp_path / "run"
    deadline = time.monotonic() + 600
    while last_step(run / "metrics.jsonl") < 5:
        assert process.poll() is None, "it ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert finish(process, tmp_path, "run") != 0
    saved = load_tensors(run / "last.safetensors")[1]["progress"]["step"]
    assert 5 <= saved < STEPS
    assert saved == last_step(run / "metrics.jsonl")  # not one step is lost
    assert not (run / "report.json").exists()

    assert finish(start(tmp_path, "run", "--resume"), tmp_path, "run") == 0
    for name in ("last.safetensors", "model.safetensors"):
        one, two = (load_tensors(folder / name)[0] for folder in (tmp_path / "peace", run))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
