"""Train a few steps without memory: the trainer, model, objective and optimiser of a recipe, on fake tensors.

    parts        weights, average (train.ema), optimiser, gradients, batches, and activations: the rest of the peak
    peaks        the same in each phase: backward pass of the blocks, optimiser, and the rest of the step
    records      every allocation and operation, for an allocator to replay, if nobody watches them
    calls        every operation of a step, for a clock

Fake tensors are on the CPU, whatever the device: torch without CUDA has no shapes for CUDA kernels.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Tensors
from clearformer.models.build import build_model
from clearformer.planning.ledger import ACTIVATIONS, REST, Call, Ledger, Record
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.task import Task
from clearformer.training.distributed import World
from clearformer.training.feed import AHEAD
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.precision import built_in
from clearformer.training.recompute import recompute_blocks
from clearformer.training.statistics import set_training
from clearformer.tuning.methods import tune

OUTER = "outer gradients"  # of weights outside the blocks, such as embeddings
PARTS = ("weights", "average", "optimiser", "gradients", "batches", ACTIVATIONS)
BLOCKS, UPDATE = "blocks", "update"  # phases: the backward pass of the blocks, and the optimiser
Step = tuple[Sequence[Tensors], int]  # micro-batches and number of targets


@dataclass(frozen=True)
class Rehearsed:
    """One step: the bytes of each part at the peak of each phase, and its operations."""

    peaks: dict[str, dict[str, int]]
    calls: list[tuple[Call, int]]
    n_views: int

    @property
    def parts(self) -> dict[str, int]:
        parts = max(self.peaks.values(), key=lambda parts: sum(parts.values()))
        return {part: parts[part] + parts[OUTER] * (part == "gradients") for part in PARTS}

    @property
    def peak(self) -> int:
        return sum(self.parts.values())

    @property
    def flops(self) -> int:
        return sum(call.flops * n for call, n in self.calls)


@dataclass(frozen=True)
class Rehearsal:
    n_parameters: int
    n_trainable: int
    largest_block: int
    """Bytes of the weights of the largest block: what a sharded model gathers at a time."""
    outer: int
    """Bytes of the weights outside the blocks: what a sharded model gathers for the whole pass."""
    steps: list[Rehearsed]
    records: list[Record]
    """Every allocation and operation of all steps, one after the other; none if they were watched."""


def rehearse(
    recipe: Tables,
    steps: Sequence[Step],
    task: Task | None = None,
    fused: bool = False,
    watch: Callable[[Record], None] | None = None,
) -> Rehearsal:
    """Train on these batches without memory. The first step runs twice: the optimiser allocates its state in it.

    `fused` chooses the optimiser's fused kernel, as on a GPU, which needs no temporary copies of the gradients. `watch`
    is called with each allocation and operation when it happens.
    """
    task = task or task_named(recipe.objective.kind)(recipe, RunFolder(Path("rehearsal")))
    with torch.device("meta"), built_in(recipe.train.precision):
        outline = build_model(recipe.model)
    if recipe.tuning is not None:
        with torch.device("meta"):
            tune(outline, recipe.tuning)
    if recipe.train.recompute == "blocks":
        recompute_blocks(outline)
    with FakeTensorMode() as fake, Ledger(watch) as ledger:
        model = materialized(outline)
        ledger.label([*model.parameters(), *model.buffers()], "weights")
        trainer = trainer_of(recipe, model, task, torch.device("cpu"), fused)
        if trainer.average is not None:
            ledger.label(trainer.average.weights.values(), "average")
        outer = watch_phases(trainer, ledger)
        done = [rehearse_step(trainer, ledger, fake, step) for step in (steps[0], *steps)][1:]
    sizes = [size_of(module) for module in model.modules() if getattr(module, "is_block", False)]
    sizes += [size_of(block) for block in listed_blocks(model)]
    n_parameters, n_trainable = (sum(p.numel() for p in ps) for ps in (model.parameters(), trainer.parameters))
    return Rehearsal(n_parameters, n_trainable, max(sizes, default=0), outer, done, ledger.records)


def watch_phases(trainer: Trainer, ledger: Ledger) -> int:
    """Tell the ledger about gradients and phases. Returns the bytes of the weights outside the blocks.

    The backward pass of the blocks begins with the gradient of the first of their weights, and ends with the last.
    """
    inner = {id(p) for block in listed_blocks(trainer.model) for p in block.parameters()}
    trained = {id(p) for p in trainer.parameters if id(p) in inner}
    waiting: set[int] = set()

    def label(parameter: Tensor) -> None:
        if id(parameter) not in inner:
            ledger.label([parameter.grad], OUTER)  # type: ignore[list-item]
            return
        ledger.label([parameter.grad], "gradients")  # type: ignore[list-item]
        if not waiting:
            waiting.update(trained)
        waiting.discard(id(parameter))
        ledger.enter(BLOCKS if waiting else REST)

    for parameter in trainer.parameters:
        parameter.register_post_accumulate_grad_hook(label)
    trainer.optimizer.register_step_pre_hook(lambda *_: ledger.enter(UPDATE))
    return sum(p.nbytes for p in trainer.model.parameters() if id(p) not in inner)


def listed_blocks(model: nn.Module) -> list[nn.Module]:
    """The modules that `shard` gathers one at a time."""
    return [child for parent in model.modules() if isinstance(parent, nn.ModuleList) for child in parent]


def build_trainer(recipe: Tables, device: torch.device) -> Trainer:
    """The trainer of a recipe with real weights, for measurements. It has no data and no folder."""
    task = task_named(recipe.objective.kind)(recipe, RunFolder(Path("rehearsal")))
    return trainer_of(recipe, build_model(recipe.model).to(device), task, device)


def trainer_of(recipe: Tables, model: nn.Module, task: Task, device: torch.device, fused: bool = False) -> Trainer:
    objective, optimizer = task.build_objective(), build_optimizer(recipe.optim, model, fused)
    parts = (model, objective, optimizer, recipe.schedule, recipe.train, task.run, device, World())
    set_training(model)
    return Trainer(*parts, carried=getattr(objective, "carried", None))


def rehearse_step(trainer: Trainer, ledger: Ledger, fake: FakeTensorMode, step: Step) -> Rehearsed:
    micro_batches, n_tokens = step
    batches = [batch.map(fake.from_tensor) for batch in micro_batches]
    ledger.restart()
    for _ in range(AHEAD + 1):  # one in use, and those that are built in advance
        copies = [batch.map(lambda tensor: torch.empty_like(tensor)) for batch in batches]
        ledger.label((t for batch in copies for t in vars(batch).values() if isinstance(t, Tensor)), "batches")
        batches += copies
    trainer.step(batches[: len(micro_batches)], n_tokens)
    state = (value for slots in trainer.optimizer.state.values() for value in slots.values())
    ledger.label((value for value in state if isinstance(value, Tensor)), "optimiser")
    calls = [(ledger.known[key], n) for key, n in ledger.calls.items()]
    peaks = {phase: {part: peak[part] for part in (*PARTS, OUTER)} for phase, peak in ledger.peaks.items()}
    fake.fake_tensor_converter.constant_storage_mapping.clear()  # or torch keeps every constant of every step
    return Rehearsed(peaks, calls, ledger.n_views)


def build_optimizer(config: OptimConfig, model: nn.Module, fused: bool) -> Any:
    optimizer = config.build(model)
    for group in optimizer.param_groups if fused else ():
        with suppress(KeyError):  # adagrad and rmsprop have no fused kernel here
            group["foreach"], group["fused"] = False, group["fused"] is not None or config.has_fused_kernel
    return optimizer


def materialized(outline: nn.Module) -> nn.Module:
    """Replace the meta tensors of a model by fake tensors on the CPU. Tied tensors stay tied."""
    copies: dict[int, Any] = {}

    def copy(tensor: Tensor) -> Tensor:
        if id(tensor) not in copies:
            real = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            is_parameter = isinstance(tensor, nn.Parameter)
            copies[id(tensor)] = nn.Parameter(real, tensor.requires_grad) if is_parameter else real
        return copies[id(tensor)]

    for module in outline.modules():
        tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = copy(tensor)
    for module in outline.modules():  # after all parameters: fused recurrent layers keep a list of them
        if isinstance(module, nn.RNNBase):
            module._init_flat_weights()
    return outline


def size_of(module: nn.Module) -> int:
    return sum(p.nbytes for p in module.parameters())
