"""Batches of the shapes that a training will see: from a sample of its data, prepared as `train` prepares all of it.

Where the data is not there, or too large and not divided into lines, the batches are blank: every position is filled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data.batch import EncoderBatch, Tensors, batch_class
from clearformer.data.built.folder import is_built
from clearformer.data.files.compressed import opened
from clearformer.data.pair_blocks import CHUNK, LINES, n_bytes
from clearformer.data.sources import MAX_LINE, file_type, read_blocks
from clearformer.errors import DataError
from clearformer.models.build import build_model
from clearformer.planning.rehearsal import Step
from clearformer.recipe import Recipe
from clearformer.tables import Tables
from clearformer.tasks import task_named
from clearformer.tasks.task import Task
from clearformer.training.distributed import World
from clearformer.training.journal import silenced

SAMPLE = 2**24  # bytes of a data file that are prepared
LOOK = 200  # steps whose batches are built, to choose from
N_TYPICAL = 12  # steps of different sizes, for the mean time, and for the holes that sizes leave to each other


@dataclass(frozen=True)
class Batches:
    """Steps to rehearse: the `largest`, and `typical` ones, evenly spaced by size. `recipe` has its final sizes."""

    recipe: Tables
    task: Task
    largest: list[Step]
    typical: list[Step]
    note: str = ""

    def task_for(self, recipe: Tables) -> Task:
        """The task with another recipe for the same data, such as one that recomputes activations."""
        task = copy(self.task)
        task.recipe = recipe
        return task

    def fewest(self) -> "Batches":
        """The largest steps and the typical one of median size, for many rehearsals."""
        return replace(self, typical=[self.typical[len(self.typical) // 2]])


@contextmanager
def sample_batches(recipe: Recipe, device: torch.device, world: World) -> Iterator[Batches]:
    """Prepare a sample of the data in a temporary folder."""
    paths = [p for split in ("train", "valid") if (source := recipe.data.source(split)) for p in paths_of(source.path)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        if missing := [path for path in paths if not path.exists()]:
            yield blank_batches(recipe, folder, f"{missing[0]} does not exist: sizes are for full batches")
            return
        smaller, part = shortened(recipe, folder)
        if part is None:
            yield blank_batches(recipe, folder, "the data is large: sizes are for full batches")
            return
        run = RunFolder(folder / "run")
        recipe = fit.with_batches(smaller, run, device, world)
        with silenced():
            task = fit.prepare(recipe, run, World(), fit.open_start(recipe, run), None)
        final = task.recipe
        if recipe.train.epochs is not None:  # of the sample, in one process
            steps = max(1, round(final.train.steps / part / world.size))
            final = final.with_tables(train=final.train.changed(steps=steps))
        note = "" if part == 1 else f"sizes of batches are those of the first {100 * part:.2g} % of the data"
        yield replace(chosen(task, world), recipe=final.with_tables(data=recipe.data), note=note)


def shortened(recipe: Recipe, folder: Path) -> tuple[Recipe, float | None]:
    """Return the recipe with the first lines of large files, and their fraction; None if they have none to take."""
    data, part = recipe.data.changed(test=None), 1.0
    for split in ("train", "valid"):
        source = data.source(split)
        size = 0 if source is None else sum(map(n_bytes, paths_of(source.path)))
        if size <= SAMPLE or is_built(paths_of(source.path)[0]):
            continue
        if any(path.is_dir() or file_type(path) not in LINES or has_long_line(path) for path in paths_of(source.path)):
            return recipe, None
        copies, is_tuple = [], isinstance(source.path, tuple)
        n_blocks = max(1, round(SAMPLE / size * estimated_lines(paths_of(source.path)[0]) / CHUNK))
        for i, path in enumerate(paths_of(source.path)):
            copies.append(folder / f"{split}{i}{file_type(path)}")
            with open(copies[-1], "wb") as file:
                for block in islice(read_blocks(path, CHUNK), n_blocks):
                    file.write(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in block))
        if split == "train":
            part = min(1.0, sum(copy.stat().st_size for copy in copies) / size)
        data = data.changed(**{split: getattr(data, split).changed(path=tuple(copies) if is_tuple else copies[0])})
    return recipe.with_tables(data=data.changed(root=Path.cwd()) if part < 1 else data), part


def has_long_line(path: Path) -> bool:
    """Whether the beginning of a large file has a line that is too long for a sample, as in text8."""
    half = MAX_LINE // 2  # a line of MAX_LINE has all of such a part
    with opened(path) as file:
        parts = iter(lambda: file.read(half), b"")
        return any(len(part) == half and b"\n" not in part for part in islice(parts, 2 + SAMPLE // half))


def estimated_lines(path: Path) -> float:
    block = next(read_blocks(path, CHUNK), [])
    return path.stat().st_size * len(block) / max(1, sum(len(line) + 1 for line in block))


def paths_of(path: Any) -> tuple[Path, ...]:
    return path if isinstance(path, tuple) else (path,)


def chosen(task: Task, world: World) -> Batches:
    """Choose steps by the size of their batches."""
    source = task.steps(world)
    n = source.count(0)
    places = sorted({round(i * (n - 1) / max(1, min(n, LOOK) - 1)) for i in range(min(n, LOOK))})
    steps = sorted((source.load(0, place, world) for place in places), key=size_of)
    longest = max(steps, key=longest_row)
    largest = [steps[-1]] if longest is steps[-1] else [steps[-1], longest]
    typical = [steps[round((i + 0.5) / N_TYPICAL * len(steps) - 0.5)] for i in range(min(N_TYPICAL, len(steps)))]
    return Batches(task.recipe, task, largest, typical)


def size_of(step: Step) -> int:
    """The numbers in the largest micro-batch, and in all of them to decide between equals."""
    sizes = [sum(tensor.numel() for tensor in tensors_of(batch)) for batch in step[0]]
    return max(sizes) * 10**6 + sum(sizes)


def longest_row(step: Step) -> int:
    return max(tensor.numel() * tensor.shape[-1] for batch in step[0] for tensor in tensors_of(batch))


def tensors_of(batch: Tensors) -> list[Tensor]:
    return [value for value in vars(batch).values() if isinstance(value, Tensor)]


def blank_batches(recipe: Tables, folder: Path, note: str) -> Batches:
    """Full batches, for data that cannot be read. The vocabulary has the size that the recipe asks for."""
    task = task_named(recipe.objective.kind)(recipe, RunFolder(folder))
    recipe = task.recipe
    keys = [key for key in ("vocab", "source_vocab", "target_vocab") if key in type(recipe.model).model_fields]
    if recipe.text.vocab_size and recipe.text.file is None:
        recipe = recipe.with_model(**dict.fromkeys(keys, recipe.text.vocab_size))
    if recipe.train.epochs is not None:
        raise DataError("the number of steps of train.epochs depends on the data", "set train.steps with --steps N")
    task.recipe = recipe
    with torch.device("meta"):
        model = build_model(recipe.model)
    kind, config, tokens = batch_class(model), recipe.model, recipe.train.tokens
    size = getattr(config, "size", None)
    length = getattr(recipe.data, "length", None) or getattr(config, "max_length", None) or 128
    length = size or min(length, tokens, getattr(getattr(recipe.data, "filter", None), "max_tokens", length))
    batch = kind.blank(tokens if size else max(1, tokens // length), length, getattr(config, "channels", 80))
    if isinstance(batch, EncoderBatch) and task.predicts_classes:
        batch = replace(batch, labels=None, labelled=None, n_tokens=len(batch))
    step = [batch] * recipe.train.accumulation, batch.n_tokens * recipe.train.accumulation
    return Batches(recipe, task, [step], [step], note)


def all_steps(batches: Batches) -> list[Step]:
    return [*batches.largest, *batches.typical]


def shuffled_steps(batches: Batches) -> list[Step]:
    """The same steps in another order: in a training, the largest batch does not come first."""
    steps = all_steps(batches)
    return Random(0).sample(steps, len(steps))
