"""A micro-batch that does not fit in memory gives the same loss and gradient in parts.

Run as a program, this file trains a translator with limited memory.
"""

import json
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.data.batch import IGNORE, Batch, EncoderBatch, ImageBatch, Tensors, TextBatch
from clearformer.memory import is_out_of_memory, keep_freed_memory
from clearformer.models import MODELS
from clearformer.tasks import TASKS
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.precision import built_in
from clearformer.training.progress import Progress
from clearformer.training.schedules import ScheduleConfig
from clearformer.training.split import Splitter, are_divided, parts_of, size_of, smallest

CPU = torch.device("cpu")
LACK = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"
B, T, V = 13, 7, 23
SIZES = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11, "dropout": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "transformer": {**SIZES, "source_vocab": V, "target_vocab": V, "n_encoder_layers": 1, "n_decoder_layers": 1},
    "gpt": {**SIZES, "vocab": V, "n_layers": 2, "attention_dropout": 0.0},
    "bert": {**SIZES, "vocab": V, "n_layers": 1, "attention_dropout": 0.0},
    "rnn-lm": {"vocab": V, "d_model": 10, "dropout": 0.0, "init": 0.3},
    "resnet": {
        "stem": "3x3", "stem_width": 5, "block": "basic", "depths": (1,), "widths": (7,), "size": 11, "channels": 3,
        "n_classes": 5,
    },
}  # fmt: skip


def batch_for(kind: str, n_rows: int = B, seed: int = 0) -> Tensors:
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, V, (n_rows, T), generator=draw)
    labels = tokens.where(torch.rand(n_rows, T, generator=draw) < 0.6, IGNORE)
    if kind == "gpt":
        return TextBatch(tokens, labels)
    if kind == "bert":
        return EncoderBatch(tokens, tokens > 3, labels=labels, classes=torch.arange(n_rows) % 2)
    if kind == "rnn-lm":
        return TextBatch(tokens, labels, continues=torch.arange(n_rows) % 3 > 0)
    if kind == "resnet":
        pixels = torch.randn(n_rows, 3, 11, 11, generator=draw, dtype=torch.float64)
        return ImageBatch(pixels, torch.arange(n_rows) % 5)
    return Batch(tokens, tokens > 3, tokens.flip(0), labels)


class Short:
    """An objective with memory for `most` rows: it fails in the backward pass, when gradients are half added up."""

    def __init__(self, objective: Any, model: nn.Module, most: int, error: Exception) -> None:
        self.objective, self.most, self.error = objective, most, error
        self.n_rows, self.n_added, self.calls = 0, 0, 0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.add)
        self.n_weights = len([*model.parameters()])

    def __call__(self, model: nn.Module, batch: Tensors) -> Any:
        self.n_rows, self.n_added, self.calls = len(batch), 0, self.calls + 1
        return self.objective(model, batch)

    def add(self, parameter: nn.Parameter) -> None:
        self.n_added += 1
        if self.n_rows > self.most and self.n_added == self.n_weights // 2:
            raise self.error


def trainer_for(
    kind: str,
    folder: Path,
    most: int = 10**6,
    error: Exception | None = None,
    world: World | None = None,
    **more: Any,
) -> Trainer:
    torch.manual_seed(1)
    known = MODELS.resolve(kind)
    with built_in("float64"):
        model = known(known.Config(**{**KINDS[kind], **more}))
    task = TASKS.resolve(model.task).objective
    objective = task(task.Config())
    carried = getattr(objective, "carried", None)
    config = TrainConfig(precision="float64", steps=6, log_every=1, save_every=2, ema=0)
    short, optimizer = Short(objective, model, most, error or RuntimeError(LACK)), OptimConfig(lr=1e-2).build(model)
    schedule, run = ScheduleConfig(warmup=2), RunFolder(folder)
    return Trainer(model, short, optimizer, schedule, config, run, CPU, world or World(), carried=carried)


def gradient(trainer: Trainer, batches: list[Tensors]) -> tuple[Tensor, dict[str, Tensor], dict[int, Tensor]]:
    trainer.optimizer.zero_grad()
    loss = trainer.backward(batches, sum(batch.n_tokens for batch in batches))
    gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    return loss, gradients, {n: state.clone() for n, state in trainer.carried.items()}


def assert_same(one: Any, two: Any) -> None:
    """Two float64 sums of the same terms in another order."""
    assert abs(one[0] - two[0]) <= 1e-12 * abs(one[0])
    for some, others in zip(one[1:], two[1:]):
        assert some.keys() == others.keys()
        for name, tensor in some.items():
            assert (tensor - others[name]).abs().max() <= 1e-12 * max(1, tensor.abs().max()), name


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("kind", ["transformer", "gpt", "bert", "rnn-lm"])
def test_parts_have_the_gradient_of_the_whole(tmp_path, kind, most):
    """Twice, since a recurrent model continues in the second step with the state of the first."""
    whole, short = trainer_for(kind, tmp_path), trainer_for(kind, tmp_path, most)
    for seed in (0, 1):
        batches = [batch_for(kind, B, seed), batch_for(kind, 3, seed + 7)]
        if kind == "rnn-lm":
            batches = [batches[0]]
        assert_same(gradient(whole, batches), gradient(short, batches))


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")], ids=repr)
def test_every_lack_of_memory_is_known(tmp_path, error):
    batches = [batch_for("gpt")]
    short = trainer_for("gpt", tmp_path, 5, error)
    assert_same(gradient(trainer_for("gpt", tmp_path), batches), gradient(short, batches))


def test_other_errors_pass(tmp_path):
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        gradient(
            trainer_for("gpt", tmp_path, 5, RuntimeError("mat1 and mat2 shapes cannot be multiplied")),
            [batch_for("gpt")],
        )


def test_it_is_said_once_and_not_tried_again(tmp_path, capsys):
    short = trainer_for("gpt", tmp_path, 5)
    gradient(short, [batch_for("gpt")])
    assert short.objective.calls == 1 + 1 + 5  # 13 rows; 6 of them; 3, 2, 3, 2 and 3
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(
        "step 0: a micro-batch of 13 rows does not fit in memory; from now on, micro-batches of this size"
    )
    assert said.endswith("are divided into parts of 3 rows at most, with the same sum")
    gradient(short, [batch_for("gpt")])
    assert short.objective.calls == 7 + 5
    gradient(short, [batch_for("gpt", 3)])  # small enough
    assert short.objective.calls == 12 + 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["gpt", "bert", "transformer"])
def test_it_is_said_once_if_the_size_becomes_smaller_later(tmp_path, capsys, kind):
    """As in the second step, when the optimiser has allocated its state."""
    short = trainer_for(kind, tmp_path, 5)
    gradient(short, [batch_for(kind)])
    first = short.progress.largest_part
    short.objective.most = 2
    gradient(short, [batch_for(kind)])
    assert 0 < short.progress.largest_part < first
    assert capsys.readouterr().err.count("from now on") == 1


class Steps:
    """Two micro-batches a step, the second one smaller."""

    group = 2

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def count(self, epoch: int) -> int:
        return 4

    def load(self, epoch: int, position: int, world: World) -> Any:
        batches = [batch_for(self.kind, n, 10 * epoch + position) for n in (B, 3)]
        return batches, sum(batch.n_tokens for batch in batches)


def losses(folder: Path) -> Tensor:
    return torch.tensor([r["loss"] for r in read_metrics(folder / "metrics.jsonl")], dtype=torch.float64)


def test_a_training_has_the_same_losses_and_a_resumed_one_knows_the_size(tmp_path, capsys):
    trainer_for("transformer", tmp_path / "whole").train(Steps("transformer"))
    short = trainer_for("transformer", tmp_path / "short", 5)
    short.config = short.config.changed(steps=4)
    short.train(Steps("transformer"))
    assert capsys.readouterr().err.count("does not fit") == 1
    _, facts = load_tensors(tmp_path / "short" / "last.safetensors")
    assert facts["progress"]["largest_part"] == short.progress.largest_part > 0
    resumed = trainer_for("transformer", tmp_path / "short", 5)
    resumed.resume()
    resumed.train(Steps("transformer"))
    assert resumed.objective.calls == 2 * (5 + 1)  # two steps, and nothing twice
    assert "does not fit" not in capsys.readouterr().err
    assert (losses(tmp_path / "whole") - losses(tmp_path / "short")).abs().max() < 1e-10
    one, two = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("whole", "short"))
    assert all((one[name] - two[name]).abs().max() < 1e-10 for name in one)


def test_with_dropout_a_step_that_starts_again_draws_the_same(tmp_path):
    """Draws differ from the draws for the whole; they are seeded again where the step starts again."""
    fails = trainer_for("gpt", tmp_path / "fails", 5, dropout=0.3)
    fails.train(Steps("gpt"))
    knows = trainer_for("gpt", tmp_path / "knows", 5, dropout=0.3)
    knows.progress.largest_part = fails.progress.largest_part
    knows.train(Steps("gpt"))
    assert knows.objective.calls < fails.objective.calls
    assert torch.equal(losses(tmp_path / "fails"), losses(tmp_path / "knows"))


@pytest.mark.parametrize("most", [0, 1])
def test_a_part_that_is_twice_as_large_as_the_limit_is_divided_again(most):
    """Only two of five rows have labels, and they come into one part; its half is the limit that it was made by."""
    labels = torch.full((5, 10), IGNORE)
    labels[2:4] = 1
    batch, at, tried = EncoderBatch(torch.ones_like(labels), labels=labels), Progress(largest_part=30), list[int]()
    assert [size_of(part) for part in parts_of(batch, 30)] == [20, 20, 60, 20]

    def compute(part: EncoderBatch) -> Tensor:
        tried.append(len(part))
        assert len(tried) < 100
        if len(part) > most:
            raise RuntimeError(LACK)
        return torch.tensor(float(part.n_tokens))

    splitter = Splitter(nn.Linear(2, 3), {}, lambda: None, World())
    with pytest.raises(RuntimeError, match="can't allocate memory") if most == 0 else nullcontext():
        assert splitter.sum([batch], compute, torch.zeros(()), at) == 20
        assert at.largest_part == 15


def test_one_row_cannot_be_divided(tmp_path):
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        gradient(trainer_for("gpt", tmp_path, 0), [batch_for("gpt")])


def test_batch_norm_cannot_be_divided(tmp_path):
    short = trainer_for("resnet", tmp_path, 5)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        gradient(short, [batch_for("resnet")])
    assert short.progress.largest_part == 0


def test_sharded_weights_cannot_be_divided(tmp_path):
    short = trainer_for("gpt", tmp_path, 5)
    short.splitter.is_sharded = True
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        gradient(short, [batch_for("gpt")])


def test_sharded_weights_are_not_divided_by_the_limit_of_a_checkpoint(tmp_path):
    """A run that was divided in one process continues on several, whose passes must all be alike."""
    sharded = trainer_for("gpt", tmp_path)
    sharded.splitter.is_sharded, sharded.progress.largest_part = True, 2 * T
    gradient(sharded, [batch_for("gpt"), batch_for("gpt", 3)])
    assert sharded.objective.calls == 2


def test_parts_by_size():
    batch = batch_for("gpt")
    assert size_of(batch) == 2 * B * T
    assert [len(part) for part in parts_of(batch, 0)] == [B]
    assert [len(part) for part in parts_of(batch, size_of(batch))] == [B]
    assert [len(part) for part in parts_of(batch, size_of(batch) - 1)] == [6, 7]
    assert [len(part) for part in parts_of(batch, 1)] == [1] * B
    assert are_divided([batch], size_of(batch) - 1)
    assert not are_divided([batch], size_of(batch))
    assert not are_divided([batch], 0)


class Ranks(World):
    """Two ranks, of which the other one has this limit."""

    other = 0

    def largest(self, *values: int) -> list[int]:
        return [max(value, -(self.other or 2**62)) for value in values]


@pytest.mark.parametrize(("one", "other", "both"), [(0, 0, 0), (7, 0, 7), (0, 5, 5), (7, 5, 5)])
def test_ranks_agree_on_the_smallest_limit(one, other, both, monkeypatch):
    monkeypatch.setattr(Ranks, "other", other)
    assert smallest(Ranks(0, 2), one) == both


def test_the_first_rank_says_that_another_lacks_memory(monkeypatch, capsys):
    """Other ranks print nothing."""
    monkeypatch.setattr(Ranks, "other", 5)
    at = Progress(step=7, largest_part=0)
    splitter = Splitter(nn.Linear(2, 3), {}, lambda: None, Ranks(0, 2))
    splitter.agree(at)
    assert at.largest_part == 5
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("step 7: a micro-batch does not fit in the memory of another process; from now on, all ")
    splitter.agree(at)
    assert capsys.readouterr().err == ""


def test_messages_of_lacking_memory():
    assert is_out_of_memory(RuntimeError(LACK))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("Expected all tensors to be on the same device"))
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_training_with_sixty_percent_of_its_memory(tmp_path):
    """In processes of their own: the limit holds for a whole process."""
    free = run_limited(tmp_path / "free", 0)
    limited = run_limited(tmp_path / "limited", int(0.6 * free["bytes"]))
    assert "does not fit" not in free["said"]
    assert "does not fit in memory; from now on" in limited["said"]
    assert limited["bytes"] <= 0.6 * free["bytes"]
    assert (losses(tmp_path / "free") - losses(tmp_path / "limited")).abs().max() < 1e-10


def run_limited(folder: Path, n_bytes: int) -> dict[str, Any]:
    command = [sys.executable, __file__, str(folder), str(n_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "said": " ".join(done.stderr.split())}


class LargeSteps(Steps):
    def load(self, epoch: int, position: int, world: World) -> Any:
        batch = batch_for(self.kind, 1511, 10 * epoch + position)
        return [batch], batch.n_tokens


def data_bytes() -> int:
    """Private memory that the process may write to, which RLIMIT_DATA limits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


def train_limited(folder: str, n_bytes: int) -> None:
    """Train with at most this much memory, if not 0, beyond that of the process; print how much there was at the end.

    Freed memory is kept, so that this is the most that there ever was.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    trainer_for("gpt", Path(folder) / "warm").train(Steps("gpt"))  # libraries and threads
    before = data_bytes()
    if n_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (before + n_bytes, resource.RLIM_INFINITY))
    trainer_for("gpt", Path(folder), d_model=50, d_ff=200, vocab=211).train(LargeSteps("gpt"))
    print(json.dumps({"bytes": data_bytes() - before}))


if __name__ == "__main__":
    train_limited(sys.argv[1], int(sys.argv[2]))
