"""A training that is killed, again and again, ends with the very bits of one that was left in peace.

Real processes of the real command line, on a corpus made here: words to be spelt backwards.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from clearformer.checkpoint import RunFolder
from clearformer.training.journal import read_metrics
from clearformer.training.parts import load_saved

pytestmark = pytest.mark.slow

RECIPE = """
data.train.path = "{folder}/pairs.tsv"
text = {{kind = "char"}}
model = {{n_encoder_layers = 1, n_decoder_layers = 1, d_model = 64, d_ff = 128, n_heads = 2}}
schedule.warmup = 5
evaluate.max_validation = 3
[train]
steps = 40
tokens = 128
accumulation = 4
log_every = 7
validate_every = 10
save_every = 5
metric = "loss"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 5))) for _ in range(41)]
    with (folder / "pairs.tsv").open("w") as file:
        for _ in range(701):
            line = draw.choices(words, k=draw.randint(2, 7))
            file.write(f"{' '.join(line)}\t{' '.join(word[::-1] for word in line)}\n")
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def peace(folder) -> Path:
    """The run that nobody interrupts."""
    assert wait([start(folder, "peace")]) == [0]
    return folder / "peace"


def start(
    folder: Path, name: str, *more: str, rank: dict[str, str] | None = None, device: str = "cpu"
) -> subprocess.Popen[str]:
    """`clearformer train` into a folder of this name: the recipe if it is new, else what the folder holds."""
    out = folder / name
    what = ["--resume"] if (out / "recipe.toml").exists() else [str(folder / "recipe.toml")]
    command = [sys.executable, "-m", "clearformer", "train", *what, "--out", str(out), "--device", device, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(rank or {})}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def wait(processes: list[subprocess.Popen[str]]) -> list[int]:
    for process in processes:
        print(process.communicate(timeout=120)[1], file=sys.stderr)  # pytest shows it when something fails
    return [process.returncode for process in processes]


def kill_when(event: Callable[[], bool], *processes: subprocess.Popen[str]) -> bool:
    """kill -9 all of them as soon as the event is seen; whether it came before they ended by themselves."""
    while not event():
        if processes[0].poll() is not None:
            wait([*processes])
            return False
        time.sleep(0.0005)  # shorter than it takes to write a checkpoint to disk
    for process in processes:
        process.kill()
    wait([*processes])
    return True


def appears(out: Path, pattern: str) -> Callable[[], bool]:
    return lambda: out.exists() and any(out.glob(pattern))


def some_time_into_training(out: Path, seconds: float) -> Callable[[], bool]:
    """So many seconds after metrics.jsonl was opened, which every start does anew, under a new inode."""
    path, begun = out / "metrics.jsonl", [0.0]
    before = path.stat().st_ino if path.exists() else None

    def event() -> bool:
        if not begun[0] and path.exists() and path.stat().st_ino != before:
            begun[0] = time.monotonic()
        return bool(begun[0]) and time.monotonic() > begun[0] + seconds

    return event


def without_time(value):
    """Facts or metrics with everything that a clock decides left out."""
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if k not in ("seconds", "tokens_per_s")}
    return [without_time(v) for v in value] if isinstance(value, list) else value


def assert_same_run(one: Path, two: Path) -> None:
    assert (one / "data/train.safetensors").read_bytes() == (two / "data/train.safetensors").read_bytes()
    for path in ("checkpoint", "model"):
        (a, facts_a), (b, facts_b) = (load_saved(getattr(RunFolder(run), path)) for run in (one, two))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
        assert without_time(facts_a) == without_time(facts_b)
    assert without_time(read_metrics(one / "metrics.jsonl")) == without_time(read_metrics(two / "metrics.jsonl"))


def test_killed_at_every_kind_of_moment(folder, peace):
    out, draw = folder / "killed", random.Random(11)
    moments: list[Callable[[], Callable[[], bool]]] = [
        lambda: appears(out, "data/.*.safetensors.*"),  # while the corpus is being prepared
        lambda: some_time_into_training(out, draw.uniform(0.0, 1.0)),
        lambda: appears(out, ".last.safetensors.*"),  # while saving
        lambda: appears(out, ".model.safetensors.*"),  # before the state that belongs to the best weights is saved
        lambda: some_time_into_training(out, draw.uniform(0.5, 1.5)),
    ]
    killed = [kill_when(moment(), start(folder, "killed")) for moment in moments]
    assert killed.count(True) >= 3, "the machine was too fast for this test: make the training longer"
    assert wait([start(folder, "killed")]) == [0]
    assert_same_run(peace, out)
    assert not [path for place in (out, out / "data") for path in place.glob(".*")]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_killed_on_a_cuda_device(folder):
    """With train.deterministic; steps are recorded as CUDA graphs, with bfloat16 products and dropout."""
    settled = ["--set", "train.deterministic=true", "--set", "train.steps=200", "--set", "model.dropout=0.1"]
    process = start(folder, "peace-cuda", *settled, device="cuda")
    assert "records its steps as CUDA graphs" in process.communicate(timeout=120)[1]
    assert process.returncode == 0
    out = folder / "killed-cuda"
    moments = [lambda: some_time_into_training(out, 0.7), lambda: appears(out, ".last.safetensors.*")]
    killed = [kill_when(moment(), start(folder, "killed-cuda", *settled, device="cuda")) for moment in moments]
    assert any(killed), "the machine was too fast for this test: make the training longer"
    assert wait([start(folder, "killed-cuda", device="cuda")]) == [0]
    assert_same_run(folder / "peace-cuda", out)


def test_ctrl_c_says_what_to_do_and_exits_130(folder, peace):
    out = folder / "interrupted"
    process = start(folder, "interrupted")
    event = some_time_into_training(out, 0.2)
    while not event():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "interrupted: saved at step" in said
    assert wait([start(folder, "interrupted")]) == [0]
    assert_same_run(peace, out)


def ranks(folder: Path, name: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Two processes as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    for rank in ("0", "1"):
        yield start(folder, name, *more, rank={**place, "RANK": rank, "LOCAL_RANK": rank})


def test_two_ranks_sharded_are_killed_and_resumed(folder):
    short = ["--set", "train.parallel=shard", "--set", "train.steps=20"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "clearformer"]
    command += ["train", str(folder / "recipe.toml"), "--out", str(folder / "two"), "--device", "cpu", *short]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=200)
    out = folder / "two-killed"
    kill_when(some_time_into_training(out, 0.8), *ranks(folder, "two-killed", *short))
    assert wait([*ranks(folder, "two-killed")]) == [0, 0]
    assert_same_run(folder / "two", out)
