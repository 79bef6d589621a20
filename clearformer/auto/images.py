"""Zero configuration for pictures: a recipe chosen from how many there are and how large, every choice said.

    from scratch    a residual network that grows with the data; pictures moved by an eighth, those in colour mirrored
    autoencoder     pictures as they are; Adam
    on a model      its own size, mean and spread of pixels; a rate that suits the method

Both stop early, once validation gets no better.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from clearformer.auto.bounds import steps_asked
from clearformer.auto.tuned import built_on, gentle, outline, tuned_outline
from clearformer.data.batch import blank
from clearformer.errors import ConfigError
from clearformer.loading.contents import read_recipe
from clearformer.recipe import Recipe, model_key, override, task_of
from clearformer.training.journal import console
from clearformer.training.loop import rounds
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, Method, rate_for

# pictures up to: blocks of each stage, width of the last, pictures a step, passes over the data
NETWORKS: list[tuple[float, list[int], int, int, int]] = [
    (2_000, [1, 1, 1], 64, 32, 40),
    (20_000, [3, 3, 3], 64, 128, 30),
    (float("inf"), [2, 2, 2, 2], 512, 256, 20),
]
PATIENT = (float("inf"), [3, 3, 3], 64, 128, 8)  # the last without a GPU, which the network above would take days
LARGEST = {"cuda": 224}  # pixels a side that are read of large pictures; 64 without a GPU
SMALL = 64  # pixels a side up to which a picture is small: the first filters leave it its size
ENLARGED = (32, 64, 128, 224)  # pixels a side, for networks that small pictures are too small for
LOOKED_AT = 100  # pictures that speak for all
# of a kind that is named without a size: pixels a side up to, and the preset that suits them
SUITED: dict[str | None, list[tuple[float, str]]] = {
    "vit": [(28, "vit-small-28"), (32, "vit-small-32"), (float("inf"), "vit-ti-16")],
    "vgg": [(SMALL, "vgg11-small"), (float("inf"), "vgg11-bn")],
}


class Survey(NamedTuple):
    n: int
    n_classes: int
    side: int  # the shorter one, of most
    is_grey: bool


def plan_images(
    sources: Mapping[str, Mapping[str, Any]], model: str | None, settings: Sequence[str], device: str = "auto"
) -> Recipe:
    """The recipe for a classifier or an autoencoder of these pictures; `settings` override what was chosen."""
    where = pick_device(device)
    named = {model_key(model): model} if model else {"kind": "resnet"}
    table: dict[str, Any] = {"data": {split: dict(source) for split, source in sources.items()}, "model": named}
    draft = Recipe.parse(override(table, settings), "--set")
    if (task := task_of("model", draft.model.kind)) not in ("image-classification", "reconstruction"):
        hint = "try resnet18, vgg11, vit-ti-16 or autoencoder"
        raise ConfigError(f"a {draft.model.kind} is for {task}, not for pictures", hint)
    is_judge = task == "image-classification"
    found = survey(draft)
    rows = NETWORKS if where.type == "cuda" else [*NETWORKS[:-1], PATIENT]
    _, depths, width, n_rows, passes = next(row for row in rows if found.n <= row[0])
    side, channels = min(found.side, LARGEST.get(where.type, SMALL)), 1 if found.is_grey else 3
    if model in SUITED:
        named = {"preset": next(name for most, name in SUITED[model] if side <= most)}
        draft = Recipe.parse(override(table | {"model": named}, settings), "--set")
    size = fitting_size(draft, side)
    sizes: dict[str, Any] = {"block": "basic", "depths": depths}
    sizes |= {"widths": [width >> i for i in reversed(range(len(depths)))]}
    sizes["stem_width"] = sizes["widths"][0]
    if draft.model.kind == "resnet":
        named = named | (sizes if model in (None, "resnet") else {}) | ({"stem": "3x3"} if size <= SMALL else {})
    steps = int(max(200, round(passes * found.n / n_rows, -1)))
    table |= {
        "image": {
            "size": size,
            "channels": channels,
            "augment": {"crop": max(1, size // 8), "flip": not found.is_grey} if is_judge else {},
        },
        "model": named | {"size": size, "channels": channels} | ({"n_classes": found.n_classes} if is_judge else {}),
        "objective": {"kind": task, **({"label_smoothing": 0.1} if is_judge else {})},
    }
    network = outline(Recipe.parse(override(table, settings), "--set").model)
    table |= {
        "optim": optimizer_for(network, n_rows) if is_judge else {"kind": "adamw", "lr": 2e-3, "weight_decay": 0.0},
        "schedule": {"kind": "linear", "warmup": steps_asked(settings, steps) // 10},
        "train": {"tokens": n_rows, "steps": steps, **rounds(steps, 20), "patience": 6, "ema": 0.99, "clip": 5.0},
    }
    recipe = Recipe.parse(override(table, settings), "--set")
    assert recipe.image is not None
    told = {"crop": f"moved by {recipe.image.augment.crop}", "flip": "mirrored"}
    augmented = " and ".join(said for name, said in told.items() if getattr(recipe.image.augment, name))
    classes = f" of {found.n_classes} classes" if is_judge else ""
    console.print(
        f"{found.n:,} {'grey' if found.is_grey else 'coloured'} pictures{classes}, "
        f"most of {found.side} pixels or more a side: "
        f"read at {recipe.image.size} × {recipe.image.size}{f', {augmented}' if augmented else ''}, by "
        f"{recipe.model.preset or recipe.model.kind} of {sum(p.numel() for p in network.parameters()):,} parameters, "
        f"{recipe.train.tokens:,} pictures a step, {recipe.train.steps:,} steps, {recipe.optim.kind} with a peak "
        f"learning rate of {recipe.optim.lr:g}, on {where}"
    )
    return recipe


# pictures up to: passes over the data by method
PASSES: list[tuple[float, dict[str, int]]] = [
    (2_000, {"full": 20, "lora": 20, "head": 20}),
    (20_000, {"full": 10, "lora": 10, "head": 10}),
    (float("inf"), {"full": 4, "lora": 4, "head": 3}),
]
ROWS = 64  # pictures a step


def plan_finetune_images(
    start: Path,
    sources: Mapping[str, Mapping[str, Any]],
    method: Method,
    settings: Sequence[str],
    device: str = "auto",
) -> Recipe:
    """The recipe for a classifier of other pictures on one that was trained before."""
    old = read_recipe(start)
    if (task := task_of("model", old.model.kind)) != "image-classification" or old.image is None:
        raise ConfigError(f"{start} is a model for {task}", "start from a classifier of pictures")
    if method == "prefix":
        raise ConfigError("a network for pictures takes no prefix", "choose full, lora or head")
    tables = old.tables()
    # A training on few classes has no use for GoogLeNet's auxiliary networks, which would begin anew.
    kept = tables["model"] | ({"auxiliary": []} if "auxiliary" in tables["model"] else {})
    image = {name: value for name, value in tables["image"].items() if name != "augment"}
    augment = {"crop": max(1, old.image.size // 8), "flip": old.image.channels == 3} if old.image.size else {}
    table: dict[str, Any] = {
        "data": {split: dict(source) for split, source in sources.items()},
        "image": image | {"augment": augment},
        "model": kept,
        "objective": {"kind": "image-classification", "label_smoothing": 0.1},
        **built_on(start, old, method),
    }
    draft = Recipe.parse(override(table, settings), "--set")
    network = tuned_outline(draft)
    n = survey(draft).n
    passes = next(row for row in PASSES if n <= row[0])[1][method]
    steps = int(max(50, round(passes * n / ROWS, -1)))
    table |= gentle(rate_for(method, width_of(network)), ROWS, steps, passes, settings)
    recipe = Recipe.parse(override(table, settings), "--set")
    console.print(
        f"{n:,} pictures: {SAID[method]} on {start}, {recipe.train.tokens:,} a step, {recipe.train.steps:,} steps, "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(device)}"
    )
    return recipe


def fitting_size(recipe: Recipe, side: int) -> int:
    """What the model's preset says, or the least that it takes from this side up: some halve a picture many times."""
    if "size" in recipe.model.model_fields_set:
        return int(recipe.model.size)
    for size in (side, *(size for size in ENLARGED if size > side)):
        try:
            recipe.with_model(size=size)
        except ConfigError:
            continue
        return size
    return side


def survey(recipe: Recipe) -> Survey:
    """Of the training pictures, as some of them say that can be read."""
    from clearformer.data.images import some_pictures

    source = recipe.data.source("train")
    n, found = some_pictures(source, LOOKED_AT)
    side = int(median(min(image.size) for image in found))
    return Survey(n, len(source.classes()), side, all(is_grey(image.mode) for image in found))


def is_grey(mode: str) -> bool:
    """Pillow's word for how a picture is stored: 1, L, LA and I;16 have no colours."""
    return mode[0] in "1LIF"


def width_of(network: Any) -> int:
    """Of what its head reads."""
    config = network.config
    with torch.device("meta"):
        return int(network.hidden(blank(network.task, 2, config.size, config.channels)).size(-1))


def optimizer_for(network: nn.Module, n_rows: int) -> dict[str, Any]:
    """Batch norms bear a high rate; without them it is a tenth. Transformers want Adam."""
    if any(isinstance(module, nn.LayerNorm) for module in network.modules()):
        return {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.98], "weight_decay": 0.05}
    peak = 0.1 if any(isinstance(module, _BatchNorm) for module in network.modules()) else 0.01
    return {"kind": "nesterov", "lr": peak * n_rows / 128, "weight_decay": 5e-4}
