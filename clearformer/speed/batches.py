"""The batches of a run as plain tensors in one safetensors file, so that a peer trains on the same ones, in order.

0.source, 0.source_mask, 0.target, 0.labels, 1.source, …          pairs
0.tokens, 0.labels, 1.tokens, …                                   text
"""

from itertools import islice
from pathlib import Path
from typing import Any

from clearformer.speed.context import Context

NAMES = ("source", "source_mask", "target", "tokens", "labels")


def write(context: Context, run: str, n: int) -> int:
    """Write the first n batches of a run folder, and return how many there are."""
    import torch

    from clearformer.checkpoint import RunFolder, save_tensors
    from clearformer.recipe import Recipe
    from clearformer.tasks import task_named
    from clearformer.training.distributed import World
    from clearformer.training.feed import places_from

    folder = RunFolder(Path(run))
    recipe = Recipe.read(folder.recipe)
    task = task_named(recipe.objective.kind)(recipe, folder)
    task.load()
    steps, world = task.steps(World()), World()
    loaded = (steps.load(*place, world)[0] for place in islice(places_from(steps, 0, 0), n))
    batches = list(islice((batch for step in loaded for batch in step), n))
    tensors = {
        f"{i}.{name}": value if value.dtype == torch.bool else value.to(torch.int32)
        for i, batch in enumerate(batches)
        for name, value in vars(batch).items()
        if name in NAMES and isinstance(value, torch.Tensor)
    }
    save_tensors(context.batches, tensors)
    return len(batches)


def read(context: Context) -> list[dict[str, Any]]:
    """The batches on the device of the measurement, and the number of target tokens of each, as `n_tokens`."""
    import torch
    from safetensors.torch import load_file

    tensors = load_file(context.batches)
    n = 1 + max(int(name.split(".")[0]) for name in tensors)
    batches: list[dict[str, Any]] = [{} for _ in range(n)]
    for name, tensor in tensors.items():
        i, field = name.split(".")
        wide = tensor if tensor.dtype == torch.bool else tensor.long()
        batches[int(i)][field] = wide.to(context.device)
        if field == "labels":
            batches[int(i)]["n_tokens"] = int((wide >= 0).sum())
    return batches
