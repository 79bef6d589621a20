"""Compiled training says what plain training says, for every kind of batch."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.data.batch import IGNORE, Batch, EncoderBatch, ImageBatch, TextBatch
from clearformer.data.pixels import ImageConfig
from clearformer.models import MODELS
from clearformer.objectives.image_classification import ImageClassification, ImageClassificationConfig
from clearformer.tasks import TASKS
from clearformer.training import compiling
from clearformer.training.compiling import MAX_SHAPES, How, compiled
from clearformer.training.journal import read_metrics

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:The .grad attribute:UserWarning"
)
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"
)
SIZES = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11, "dropout": 0.0}


def case(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Any, Any]:
    """In float64, unless asked otherwise: a compiler adds and multiplies in an order of its own."""
    torch.manual_seed(0)
    tokens = torch.randint(3, 23, (2, 7))
    if name == "gpt":
        sizes = {**SIZES, "vocab": 23, "n_layers": 2, "attention_dropout": 0.0}
        batch: Any = TextBatch(tokens, tokens.flip(1))
    elif name == "bert":
        sizes = {**SIZES, "vocab": 23, "n_layers": 1, "attention_dropout": 0.0}
        labels = tokens.where(tokens % 3 == 0, IGNORE)
        batch = EncoderBatch(tokens, tokens > 3, labels=labels, classes=torch.tensor([0, 1]))
    elif name == "rnn-lm":
        sizes = {"vocab": 23, "d_model": 10, "dropout": 0.0, "init": 0.3}
        batch = TextBatch(tokens, tokens.flip(1), continues=torch.zeros(2, dtype=torch.bool))
    elif name == "seq2seq":
        sizes = {"source_vocab": 23, "target_vocab": 23, "d_model": 7, "d_embedding": 10, "attention": "additive"}
        sizes["dropout"] = 0.0
        batch = Batch(tokens, torch.arange(7) < torch.tensor([[7], [3]]), tokens.flip(0), tokens)
    elif name == "resnet":
        sizes = {"stem": "3x3", "stem_width": 5, "block": "basic", "depths": (1,), "widths": (7,), "size": 11}
        sizes |= {"channels": 3, "n_classes": 5}
        batch = ImageBatch(torch.randn(5, 3, 11, 11, dtype=dtype), torch.tensor([0, 2, 1, 1, 0]))
    else:
        sizes = {**SIZES, "source_vocab": 23, "target_vocab": 23, "n_encoder_layers": 1, "n_decoder_layers": 1}
        batch = Batch(tokens, tokens > 3, tokens.flip(0), tokens)
    kind = MODELS.resolve(name)
    model = kind(kind.Config(**sizes)).to(dtype)
    objective = TASKS.resolve(model.task).objective
    return model, objective(objective.Config()), batch


WHOLE = [(name, "whole") for name in ("transformer", "gpt", "bert", "rnn-lm", "resnet")]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("name", "how"), [*WHOLE, ("gpt", "blocks"), ("seq2seq", "blocks")])
def test_loss_count_and_gradients_are_the_same(name: str, how: How) -> None:
    results = []
    for chosen in ("off", how):
        model, objective, batch = case(name)
        total, count = compiled(objective, model, chosen)(model, batch)
        total.backward()
        results.append((total.detach(), count, [p.grad for p in model.parameters()]))
    (ours, n, grads), (theirs, m, others) = results
    assert n == m == batch.n_tokens
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(grads, others):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="Inductor 2.13 writes at::vec without its header where torch has no vector instructions",
)
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")  # as Dynamo makes one of Beta's
def test_augmentation_compiles_and_draws_from_the_seed() -> None:
    """All of it in one graph with the network; what is drawn differs from step to step, and not from run to run."""
    model, _, batch = case("resnet", torch.float32)
    augment = {"flip": True, "crop": 2, "erase": 0.5, "randaugment": 1, "mixup": 0.3}
    image = ImageConfig(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), augment=augment)
    objective = compiled(ImageClassification(ImageClassificationConfig(), image), model, "whole")
    pixels = ImageBatch(torch.randint(256, batch.pixels.shape, dtype=torch.uint8), batch.classes)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(objective(model, pixels)[0].item())
    assert losses[0] == losses[1] != losses[2]


class Counting:
    """A backend that runs the graph as it is, and counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


@pytest.fixture
def counting() -> Iterator[Counting]:
    torch._dynamo.reset()  # torch bounds the graphs of one function over all tests
    yield Counting()
    torch._dynamo.reset()


def losses(name: str, how: How, batches: list[Any], backend: Any) -> list[tuple[float, int]]:
    model, objective, _ = case(name)
    run = compiled(objective, model, how, backend)
    results = [run(model, batch) for batch in batches]
    assert sum(total for total, _ in results).requires_grad
    return [(total.item(), n) for total, n in results]


def text(length: int, **fields: Any) -> TextBatch:
    tokens = torch.arange(2 * length).reshape(2, length) % 19 + 3
    return TextBatch(tokens, tokens.flip(1), **fields)


MANY = [text(length) for length in (2, 3, 5, 7, 11, 4, 6, 8, 3, 10, 2)]


def test_many_shapes_are_bounded_and_said_once(counting: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine lengths in eleven batches: the first four are compiled, and used again; every loss is that of eager."""
    ours = losses("gpt", "whole", MANY, counting)
    assert counting.graphs == MAX_SHAPES == 4
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("one graph per batch shape, for 4 shapes") == 1
    assert said.count("For texts of many lengths, use --set train.compile=blocks.") == 1
    theirs = losses("gpt", "off", MANY, counting)
    assert [n for _, n in ours] == [n for _, n in theirs] == [batch.n_tokens for batch in MANY]
    torch.testing.assert_close([loss for loss, _ in ours], [loss for loss, _ in theirs], rtol=1e-5, atol=0)


def test_two_shapes_are_two_graphs_and_no_words(counting: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows of one length, fewer of them in the last batch of an epoch; how many tokens count changes nothing."""
    full, rest = text(7), TextBatch(text(7).tokens[:1], text(7).labels[:1])
    fewer = TextBatch(full.tokens, full.labels.where(full.tokens > 5, IGNORE))
    losses("gpt", "whole", [full, fewer, full, rest, full, fewer, rest], counting)
    assert counting.graphs == 2
    assert capsys.readouterr().err == ""


def test_pictures_are_one_graph(counting: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    batch = case("resnet")[2]
    losses("resnet", "whole", [batch] * 5, counting)
    assert counting.graphs == 1
    assert capsys.readouterr().err == ""


def test_a_field_that_is_there_or_not_is_another_shape(counting: Counting) -> None:
    positions = torch.arange(7).expand(2, 7)
    losses("gpt", "whole", [text(7), text(7, positions=positions), text(7)], counting)
    assert counting.graphs == 2


@pytest.mark.parametrize(
    ("name", "n_tokens", "shapes", "expected"),
    [
        ("gpt", 1000, "few", "graph"),
        ("gpt", 1000, "one", "graph"),
        ("gpt", 10**15, "few", "blocks"),
        ("gpt", 10**15, "one", "whole"),
        ("rnn-lm", 10**15, "one", "graph"),
    ],
)
def test_auto_compiles_long_runs_of_transformers(
    name: str, n_tokens: int, shapes: Any, expected: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "can_compile", lambda: True)
    assert compiling.choose(case(name)[0], n_tokens, shapes) == expected


def test_without_a_compiler_steps_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "can_compile", lambda: False)
    assert compiling.choose(case("gpt")[0], 10**15, "one") == "graph"


def test_which_models_are_recorded() -> None:
    """A loop over time steps waits for the host, and so does the dropout of cuDNN."""
    assert case("gpt")[0].is_recordable
    assert case("transformer")[0].is_recordable
    assert case("rnn-lm")[0].is_recordable  # without dropout
    assert not getattr(case("seq2seq")[0], "is_recordable", False)
    dropped = case("rnn-lm")[0]
    dropped.config = dropped.config.changed(dropout=0.1)
    assert not dropped.is_recordable


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("parallel", ["replicate", "shard"])
def test_blocks_are_compiled_in_two_processes(parallel: str, tmp_path: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    lines = [f"{a} {b} {c}\t{c} {b} {a}\n" for a in words for b in words for c in words]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    settings = {"parallel": parallel, "steps": 4, "log_every": 1, "validate_every": 4, "tokens": 128, "ema": 0.0}

    def losses(how: str) -> list[float]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += ["-m", "clearformer", "train", "--pairs", str(tmp_path / "pairs.tsv"), "--device", "cpu"]
        command += ["--out", str(tmp_path / how), "--set", f"train.compile={how}", "--set", "model.dropout=0"]
        command += [word for name, value in settings.items() for word in ("--set", f"train.{name}={value}")]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=400)
        return [line["loss"] for line in read_metrics(tmp_path / how / "metrics.jsonl") if line["kind"] == "train"]

    assert losses("blocks") == pytest.approx(losses("off"), rel=1e-4)
