"""Zero configuration for images: a recipe chosen from how many there are and how large, every choice said aloud.

    from scratch    a residual network that grows with the data; images shifted by an eighth, coloured ones mirrored
    autoencoder     images as they are; Adam
    on a model      its own size, mean and standard deviation of pixels; a rate that suits the method

All stop early, once validation gets no better.
"""

from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from clearformer.data.batch import ImageBatch
from clearformer.data.images import some_images
from clearformer.errors import ConfigError
from clearformer.models.build import model_key, model_task, outline
from clearformer.tables import Tables
from clearformer.tasks.auto.common import gentle_training, tunable_outline, tuning_tables
from clearformer.tasks.task import Plan, Request
from clearformer.training.journal import console
from clearformer.training.loop import rounds
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, rate_for


class Row(NamedTuple):
    """What suits so many images."""

    most: float
    depths: list[int]
    """Blocks of each stage."""
    width: int
    """Channels of the last stage."""
    n_rows: int
    """Images a step."""
    passes: int


NETWORKS = [
    Row(2_000, [1, 1, 1], 64, 32, 40),
    Row(20_000, [3, 3, 3], 64, 128, 30),
    Row(float("inf"), [2, 2, 2, 2], 512, 256, 20),
]
PATIENT = Row(float("inf"), [3, 3, 3], 64, 128, 8)  # the last without a GPU, where the network above would take days
LARGEST = {"cuda": 224}  # pixels a side at which large images are read; 64 without a GPU
SMALL = 64  # pixels a side up to which an image is small: the first filters keep its size
ENLARGED = (32, 64, 128, 224)  # pixels a side, for networks that small images are too small for
LOOKED_AT = 100  # images that stand for all
# for a kind that is named without a size: pixels a side up to, and the preset that suits them
SUITED: dict[str | None, list[tuple[float, str]]] = {
    "vit": [(28, "vit-small-28"), (32, "vit-small-32"), (float("inf"), "vit-ti-16")],
    "vgg": [(SMALL, "vgg11-small"), (float("inf"), "vgg11-bn")],
}


class ImageSurvey(NamedTuple):
    n: int
    n_classes: int
    side: int
    """The median length of the shorter side, in pixels."""
    is_grey: bool


def plan_images(request: Request) -> Plan:
    """The recipe for a classifier or an autoencoder from scratch."""
    named = {model_key(request.model): request.model} if request.model else {"kind": "resnet"}
    draft = request.recipe({"data": request.data, "model": named})
    if (task := model_task(draft.model.kind)) not in ("image-classification", "reconstruction"):
        hint = "try resnet18, vgg11, vit-ti-16 or autoencoder"
        raise ConfigError(f"a {draft.model.kind} is for {task}, not for images", hint)
    is_classifier, device = task == "image-classification", pick_device(request.device).type
    survey = survey_images(draft)
    row = next(row for row in (NETWORKS if device == "cuda" else [*NETWORKS[:-1], PATIENT]) if survey.n <= row.most)
    side, n_rows = min(survey.side, LARGEST.get(device, SMALL)), row.n_rows
    if request.model in SUITED:
        named = {"preset": next(name for most, name in SUITED[request.model] if side <= most)}
        draft = request.recipe({"data": request.data, "model": named})
    table = sized(request, draft, named, survey, row, fitting_size(draft, side))
    network = outline(request.recipe(table).model)
    steps = int(max(200, round(row.passes * survey.n / n_rows, -1)))
    table |= {
        "optim": optimizer_for(network, n_rows)
        if is_classifier
        else {"kind": "adamw", "lr": 2e-3, "weight_decay": 0.0},
        "schedule": {"kind": "linear", "warmup": request.steps(steps) // 10},
        "train": {"tokens": n_rows, "steps": steps, **rounds(steps, 20), "patience": 6, "ema": 0.99, "clip": 5.0},
    }
    recipe = request.recipe(table)
    announce(recipe, survey, sum(p.numel() for p in network.parameters()), request)
    return Plan(recipe)


def sized(
    request: Request, draft: Tables, named: dict[str, Any], survey: ImageSurvey, row: Row, size: int
) -> dict[str, Any]:
    """[data], [image], [model] and [objective] for images of this size."""
    kind, channels = draft.model.kind, 1 if survey.is_grey else 3
    table: dict[str, Any] = {"data": request.data}
    model: dict[str, Any] = dict(named)
    if kind == "resnet" and request.model in (None, "resnet"):
        widths = [row.width >> i for i in reversed(range(len(row.depths)))]
        model |= {"block": "basic", "depths": row.depths, "widths": widths, "stem_width": widths[0]}
    if kind == "resnet" and size <= SMALL:
        model |= {"stem": "3x3"}
    table["image"] = {"size": size, "channels": channels, "augment": {}}
    table["model"] = model | {"size": size, "channels": channels}
    table["objective"] = {"kind": model_task(kind)}
    if model_task(kind) == "image-classification":
        table["image"]["augment"] = {"crop": max(1, size // 8), "flip": not survey.is_grey}
        table["model"]["n_classes"] = survey.n_classes
        table["objective"]["label_smoothing"] = 0.1
    return table


def announce(recipe: Tables, survey: ImageSurvey, n_parameters: int, request: Request) -> None:
    assert recipe.image is not None
    said = {"crop": f"moved by {recipe.image.augment.crop}", "flip": "mirrored"}
    augmented = " and ".join(words for name, words in said.items() if getattr(recipe.image.augment, name))
    classes = f" of {survey.n_classes} classes" if recipe.objective.kind == "image-classification" else ""
    console.print(
        f"{survey.n:,} {'grey' if survey.is_grey else 'coloured'} images{classes}, "
        f"most of {survey.side} pixels or more a side: "
        f"read at {recipe.image.size} × {recipe.image.size}{f', {augmented}' if augmented else ''}, by "
        f"{recipe.model.preset or recipe.model.kind} of {n_parameters:,} parameters, "
        f"{recipe.train.tokens:,} images a step, {recipe.train.steps:,} steps, {recipe.optim.kind} with a peak "
        f"learning rate of {recipe.optim.lr:g}, on {pick_device(request.device)}"
    )


# images up to: passes over the data by method
PASSES: list[tuple[float, dict[str, int]]] = [
    (2_000, {"full": 20, "lora": 20, "head": 20}),
    (20_000, {"full": 10, "lora": 10, "head": 10}),
    (float("inf"), {"full": 4, "lora": 4, "head": 3}),
]
ROWS = 64  # images a step


def plan_finetune_images(request: Request, start: Path, old: Tables) -> Plan:
    """The recipe for a classifier of other images on one that was trained before."""
    method = request.method
    if (task := model_task(old.model.kind)) != "image-classification" or old.image is None:
        raise ConfigError(f"{start} is a model for {task}", "start from an image classifier")
    if method == "prefix":
        raise ConfigError("a network for images takes no prefix", "choose full, lora or head")
    tables = old.tables()
    # GoogLeNet's auxiliary networks would start from fresh weights, and few classes need no such help.
    kept = tables["model"] | ({"auxiliary": []} if "auxiliary" in tables["model"] else {})
    image = {name: value for name, value in tables["image"].items() if name != "augment"}
    augment = {"crop": max(1, old.image.size // 8), "flip": old.image.channels == 3} if old.image.size else {}
    table: dict[str, Any] = {
        "data": request.data,
        "image": image | {"augment": augment},
        "model": kept,
        "objective": {"kind": "image-classification", "label_smoothing": 0.1},
        **tuning_tables(start, old, method),
    }
    draft = request.recipe(table)
    network = tunable_outline(draft)
    n = survey_images(draft).n
    passes = next(row for row in PASSES if n <= row[0])[1][method]
    steps = int(max(50, round(passes * n / ROWS, -1)))
    table |= gentle_training(rate_for(method, width_of(network)), ROWS, steps, passes, request)
    recipe = request.recipe(table)
    console.print(
        f"{n:,} images: {SAID[method]} on {start}, {recipe.train.tokens:,} a step, {recipe.train.steps:,} steps, "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}"
    )
    return Plan(recipe)


def fitting_size(recipe: Tables, side: int) -> int:
    """The size in the model's preset, else the least from `side` up that it takes: some halve an image many times."""
    if "size" in recipe.model.model_fields_set:
        return int(recipe.model.size)
    for size in (side, *(size for size in ENLARGED if size > side)):
        try:
            recipe.with_model(size=size)
        except ConfigError:
            continue
        return size
    return side


def survey_images(recipe: Tables) -> ImageSurvey:
    """Count the training images; some that can be read stand for the size and colours of all."""
    source = recipe.data.source("train")
    n, images = some_images(source, LOOKED_AT)
    side = int(median(min(image.size) for image in images))
    return ImageSurvey(n, len(source.classes()), side, all(is_grey(image.mode) for image in images))


def is_grey(mode: str) -> bool:
    """Pillow's name for how an image is stored: 1, L, LA and I;16 have no colours."""
    return mode[0] in "1LIF"


def width_of(network: Any) -> int:
    """The width of what the head reads."""
    config = network.config
    with torch.device("meta"):
        return int(network.hidden(ImageBatch.blank(2, config.size, config.channels)).size(-1))


def optimizer_for(network: nn.Module, n_rows: int) -> dict[str, Any]:
    """Batch norms bear a high rate; without them it is a tenth. Transformers want Adam."""
    if any(isinstance(module, nn.LayerNorm) for module in network.modules()):
        return {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.98], "weight_decay": 0.05}
    peak = 0.1 if any(isinstance(module, _BatchNorm) for module in network.modules()) else 0.01
    return {"kind": "nesterov", "lr": peak * n_rows / 128, "weight_decay": 5e-4}
