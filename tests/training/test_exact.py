"""Gradients do not depend on how a step's tokens are cut into micro-batches, nor over how many ranks.

Run as a program, this file is one rank of the tests at its end.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearformer.checkpoint import RunFolder, load_tensors, save_tensors, whole
from clearformer.data.batch import Batch
from clearformer.data.collate import pad_batch
from clearformer.data.store import Ragged
from clearformer.errors import TrainingError
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World, block_by_block, join_world, leave_world, shard
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.parts import load_saved
from clearformer.training.precision import built_in
from clearformer.training.recompute import in_chunks, recompute_blocks
from clearformer.training.schedules import ScheduleConfig

CPU = torch.device("cpu")
SIZES = {"source_vocab": 29, "target_vocab": 29, "d_model": 14, "d_ff": 23, "n_heads": 7, "dropout": 0.0}
N_PAIRS = 32


def batches_of(size: int) -> list[Batch]:
    """The same 32 pairs of random lengths, `size` a batch, each batch padded by itself."""
    draw = torch.Generator().manual_seed(0)
    sides = [
        [
            torch.randint(4, 29, (int(n),), generator=draw).tolist()
            for n in torch.randint(1, 12, (N_PAIRS,), generator=draw)
        ]
        for _ in range(2)
    ]
    cuts = range(0, N_PAIRS, size)
    return [pad_batch(*(Ragged.of(side[i : i + size]) for side in sides), 0, 1, 2) for i in cuts]


def count_of(batches: list[Batch]) -> int:
    return sum(batch.n_tokens for batch in batches)


def build(folder: Path, precision: str, world: World, parallel: str = "replicate", recompute: str = "none") -> Trainer:
    torch.manual_seed(1)
    with built_in(precision):
        model = Transformer(TransformerConfig(n_encoder_layers=2, n_decoder_layers=2, **SIZES))
    if recompute == "blocks":
        assert recompute_blocks(model) == 4
    if parallel == "shard":
        shard(model, CPU)
    config = TrainConfig(precision=precision, parallel=parallel, steps=3, log_every=3, validate_every=3, save_every=3)
    objective = in_chunks(Translation(TranslationConfig(label_smoothing=0.1)), recompute)
    optimizer = OptimConfig(lr=1e-2).build(model)
    return Trainer(model, objective, optimizer, ScheduleConfig(warmup=2), config, RunFolder(folder), CPU, world)


def gradients(trainer: Trainer, batches: list[Batch]) -> dict[str, torch.Tensor]:
    """After the trainer's own backward pass, with this rank's share of the batches; whole, on every rank."""
    trainer.backward(trainer.world.select(batches), count_of(batches))
    return {name: whole(p.grad) for name, p in trainer.model.named_parameters()}


def assert_same_gradients(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor], precision: str) -> None:
    """float64: each tensor to 1e-10; float32: all together, as a sum over a step's tokens that is cut differently."""
    assert one.keys() == two.keys()
    n_tokens = count_of(batches_of(N_PAIRS))
    off = {name: (one[name] - two[name]).norm() for name in one}
    size = {name: one[name].norm() for name in one}
    if precision == "float64":
        assert max((off[name] / size[name]).item() for name in one) < 1e-10
    whole_size = torch.stack(list(size.values())).norm().item()
    assert torch.stack(list(off.values())).norm() < n_tokens * torch.finfo(torch.float32).eps * whole_size


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("size", [8, 1])
def test_micro_batches_of_one_step_add_up(tmp_path, precision, size):
    whole_batch = gradients(build(tmp_path, precision, World()), batches_of(N_PAIRS))
    in_pieces = gradients(build(tmp_path, precision, World()), batches_of(size))
    assert_same_gradients(whole_batch, in_pieces, precision)


def test_the_comparison_can_fail(tmp_path):
    """A mean of means, as if every micro-batch counted alike, is far off."""
    trainer = build(tmp_path, "float64", World())
    right = gradients(trainer, batches_of(N_PAIRS))
    wrong = build(tmp_path, "float64", World())
    for batch in batches_of(8):
        wrong.backward([batch], 4 * batch.n_tokens)
    with pytest.raises(AssertionError):
        assert_same_gradients(right, {name: p.grad for name, p in wrong.model.named_parameters()}, "float64")


class Again:
    """The same four micro-batches at every step."""

    group = 4

    def count(self, epoch):
        return 3

    def load(self, epoch, position, world):
        return world.select(batches_of(8)), count_of(batches_of(8))


MODES = [(parallel, precision) for parallel in ("replicate", "shard") for precision in ("float64", "float32")]


def be_a_rank(folder: Path) -> None:
    """Gradients of both ways to be two, in both precisions; then checkpoints, sharded to whole and whole to sharded."""
    world = join_world(CPU)
    for parallel, precision in MODES:
        found = gradients(build(folder, precision, world, parallel), batches_of(8))
        if world.is_first:
            save_tensors(folder / f"{parallel}-{precision}.safetensors", found)
    for parallel in ("replicate", "shard"):
        found = gradients(build(folder, "float32", world, parallel, "blocks"), batches_of(8))
        if world.is_first:
            save_tensors(folder / f"{parallel}-recomputed.safetensors", found)
    written = build(folder / "sharded", "float64", world, "shard")
    written.train(Again())
    read = build(folder / "whole", "float64", world, "shard")
    read.resume()
    read.run = RunFolder(folder / "again")
    read.save()
    with block_by_block(read.model), torch.no_grad():
        logits = read.model(batches_of(N_PAIRS)[0])
    if world.is_first:
        save_tensors(folder / "gathered.safetensors", {"logits": logits})
    broken = build(folder / "broken", "float64", world, "shard")
    if world.rank == 1:
        broken.parameters[0].detach().to_local().fill_(float("inf"))
    try:
        broken.save()
    except TrainingError as error:
        (folder / f"refused-{world.rank}").write_text(error.message)
    leave_world(world)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> Path:
    """What two processes, joined by gloo, left in a folder where one process had trained before."""
    folder = tmp_path_factory.mktemp("ranks")
    build(folder / "whole", "float64", World()).train(Again())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, __file__, folder], env={**common, "RANK": str(rank)}) for rank in range(2)
    ]
    assert [rank.wait(200) for rank in ranks] == [0, 0]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "precision"), MODES)
def test_two_ranks_find_the_gradient_of_one(two_ranks, tmp_path, parallel, precision):
    alone = gradients(build(tmp_path, precision, World()), batches_of(N_PAIRS))
    assert_same_gradients(alone, load_tensors(two_ranks / f"{parallel}-{precision}.safetensors")[0], precision)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["replicate", "shard"])
def test_two_ranks_recompute_the_same_bits(two_ranks, parallel):
    """Sharded weights are gathered again before a block is recomputed."""
    plain, recomputed = (
        load_tensors(two_ranks / f"{parallel}-{name}.safetensors")[0] for name in ("float32", "recomputed")
    )
    assert plain.keys() == recomputed.keys()
    assert all(torch.equal(plain[name], recomputed[name]) for name in plain)


@pytest.mark.slow
def test_sharded_checkpoint_loads_whole(two_ranks):
    """In one process, resumed and saved again: the same names, the same bits, the same facts."""
    trainer = build(two_ranks / "sharded", "float64", World())
    trainer.resume()
    trainer.run = RunFolder(two_ranks / "sharded-again")
    trainer.save()
    assert_same_file(two_ranks / "sharded", two_ranks / "sharded-again")


@pytest.mark.slow
def test_whole_checkpoint_loads_sharded(two_ranks):
    assert_same_file(two_ranks / "whole", two_ranks / "again")


@pytest.mark.slow
def test_sharded_training_is_the_training_of_one(two_ranks):
    """Three steps of Adam with clipping and an average; sums are cut differently, so not to the bit.

    In float64, since key biases have no gradient but noise, which Adam would blow up to steps of full size.
    """
    sharded, alone = (load_saved(RunFolder(two_ranks / name).checkpoint) for name in ("sharded", "whole"))
    for name in alone[0]:
        torch.testing.assert_close(sharded[0][name], alone[0][name], rtol=1e-6, atol=1e-9)
    assert sharded[1]["progress"]["step"] == alone[1]["progress"]["step"] == 3


@pytest.mark.slow
def test_gathered_model_computes_whole(two_ranks):
    found, _ = load_tensors(two_ranks / "gathered.safetensors")
    trainer = build(two_ranks / "whole", "float64", World())
    trainer.resume()
    with torch.no_grad():
        assert torch.equal(found["logits"], trainer.model(batches_of(N_PAIRS)[0]))


@pytest.mark.slow
def test_every_rank_refuses_what_is_not_finite_on_one(two_ranks):
    """Only the second rank holds the slice that is infinite."""
    said = [(two_ranks / f"refused-{rank}").read_text() for rank in (0, 1)]
    assert said == ["a weight is not a finite number at step 0; no checkpoint has been saved"] * 2
    assert not RunFolder(two_ranks / "broken").checkpoint.exists()


def assert_same_file(one: Path, two: Path) -> None:
    (a, facts_a), (b, facts_b) = (load_saved(RunFolder(folder).checkpoint) for folder in (one, two))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert facts_a == facts_b


if __name__ == "__main__":
    torch.set_num_threads(1)
    be_a_rank(Path(sys.argv[1]))
