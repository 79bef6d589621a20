"""Steps recorded as CUDA graphs do what plain steps do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Batch
from clearformer.data.buckets import N_SHAPES
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.training import graphs
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.graphs import MAX_GRAPHS
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.precision import built_in, make_deterministic
from clearformer.training.schedules import ScheduleConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SHAPES = [(7, 5), (3, 11), (7, 5), (5, 7)]
SIZES = {"source_vocab": 29, "target_vocab": 29, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 24}
SIZES |= {"d_ff": 31, "n_heads": 3, "max_length": 13}


def batch(step: int) -> Batch:
    """Shapes take turns; a step of each repeats an earlier shape."""
    draw = torch.Generator().manual_seed(step)
    n, length = SHAPES[step % len(SHAPES)]
    source, target, labels = (torch.randint(3, 29, (n, length), generator=draw) for _ in range(3))
    mask = torch.arange(length) < torch.randint(1, length + 1, (n, 1), generator=draw)
    return Batch(source, mask, target, labels.masked_fill(~mask, -100)).to("cuda")


def trainer(folder: Path, compile: str, precision: str, dropout: float = 0.1) -> Trainer:
    torch.manual_seed(3)
    with built_in(precision):
        model = Transformer(TransformerConfig(**SIZES, dropout=dropout)).to("cuda")
    config = TrainConfig(steps=60, compile=compile, precision=precision, ema=0.9, tokens=64)
    objective = Translation(TranslationConfig())
    parts = (objective, OptimConfig(lr=1e-3).build(model, compile == "graph"), ScheduleConfig(warmup=5), config)
    return Trainer(model, *parts, RunFolder(folder), torch.device("cuda", 0), World())


def losses(toy: Trainer, n: int, start: int = 0) -> list[float]:
    """Each step's loss per token."""
    values = []
    for step in range(start, start + n):
        some = batch(step)
        before = toy.meter.sums[0].item()
        toy.step([some], some.n_tokens)
        values.append((toy.meter.sums[0].item() - before) / some.n_tokens)
        toy.meter.clear()
    return values


def test_each_step_has_the_loss_of_a_plain_step(tmp_path: Path) -> None:
    """float32 with dropout: the same kernels, the same draws."""
    plain, graph = (losses(trainer(tmp_path, how, "float32"), 20) for how in ("off", "graph"))
    assert graph == pytest.approx(plain, rel=1e-5)


def test_fifty_steps_in_float64(tmp_path: Path) -> None:
    plain, graph = (losses(trainer(tmp_path, how, "float64"), 50) for how in ("off", "graph"))
    assert graph == pytest.approx(plain, rel=1e-9)


def test_every_shape_is_recorded_when_it_comes_again(tmp_path: Path) -> None:
    toy = trainer(tmp_path, "graph", "float32")
    losses(toy, 9)
    assert toy.graphs is not None
    assert len(toy.graphs.steps) == 3
    assert MAX_GRAPHS >= N_SHAPES


def test_dropout_differs_between_replays(tmp_path: Path) -> None:
    """The same batch and weights; the learning rate is zero, so that only chance can change the loss."""
    toy = trainer(tmp_path, "graph", "float32", dropout=0.3)
    toy.schedule = ScheduleConfig(warmup=10**9)
    some, seen = batch(0), []
    for _ in range(6):
        toy.meter.clear()
        toy.step([some], some.n_tokens)
        seen.append(toy.meter.sums[0].item())
    assert len(set(seen)) == 6


@pytest.fixture
def deterministic() -> Iterator[None]:
    make_deterministic()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("max_graphs", [2, 16])
def test_a_resumed_run_is_bit_equal(
    deterministic: None, precision: str, max_graphs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 steps at once, and 14 and 10: after resuming, shapes are plain once more before they are recorded."""
    monkeypatch.setattr(graphs, "MAX_GRAPHS", max_graphs)
    whole, first, second = (trainer(tmp_path, "graph", precision) for _ in range(3))
    losses(whole, 24)
    losses(first, 14)
    first.save()
    second.resume()
    losses(second, 10, start=14)
    for one, two in zip(whole.model.parameters(), second.model.parameters()):
        assert torch.equal(one, two)
