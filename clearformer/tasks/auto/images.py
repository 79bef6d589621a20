"""Zero-configuration defaults for images. The choices depend on the number of images and their size.

    from scratch    a residual network, wider for more images (sizes.py); random crop, and horizontal flip for colour
    autoencoder     no augmentation; Adam
    fine-tuning     image size, mean and standard deviation of the base model; a learning rate that suits the method

All use early stopping.
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
from clearformer.tasks.auto.common import (
    describe_optimizer,
    finetuning_tables,
    print_plan,
    tunable_outline,
    tuning_tables,
)
from clearformer.tasks.auto.sizes import TUNE_IMAGES, ImageSizes, image_sizes, tens
from clearformer.tasks.task import Plan, Request
from clearformer.training.config import rounds
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import METHOD_NAMES, rate_for
from clearformer.wording import count, listed

LARGEST = {"cuda": 224}  # maximum size in pixels per side; SMALL without a GPU
SMALL = 64  # pixels per side up to which the first convolution does not reduce the size
STEM = 4  # the factor by which a 7×7 stem reduces the size; Hugging Face has no ResNet with another stem
ENLARGED = (32, 64, 128, 224)  # pixels per side, for networks that need larger images
SAMPLED = 100  # images that are inspected for size and colours
# the presets of an architecture given without a size, each with its maximum number of pixels per side
PRESETS: dict[str | None, list[tuple[float, str]]] = {
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
    """Choose a recipe to train a classifier or an autoencoder from scratch."""
    named = {model_key(request.model): request.model} if request.model else {"kind": "resnet"}
    device = pick_device(request.device).type
    is_sized = is_sized_here(request, named)
    drafted = network_of(image_sizes(1, device == "cuda")) if is_sized else {}  # for settings such as model.depths
    draft = request.recipe({"data": request.data, "model": named | drafted})
    if (task := model_task(draft.model.kind)) not in ("image-classification", "reconstruction"):
        hint = "choose --model resnet18, vgg11, vit-ti-16 or autoencoder"
        raise ConfigError(f"{draft.model.kind} is a model for {task}, not for images", hint)
    is_classifier = task == "image-classification"
    survey = survey_images(draft)
    sizes = image_sizes(survey.n, device == "cuda")
    side, n_rows = min(survey.side, LARGEST.get(device, SMALL)), sizes.n_rows
    if request.model in PRESETS:
        named = {"preset": next(name for most, name in PRESETS[request.model] if side <= most)}
        draft = request.recipe({"data": request.data, "model": named})
    size = fitting_size(draft, side)
    if request.exportable and draft.model.kind == "resnet" and size <= SMALL:
        size = min(STEM * size, LARGEST["cuda"])  # after the stem, as large as after a 3×3 convolution
    table = sized(request, draft, named, survey, sizes, size)
    network = outline(request.recipe(table).model)
    steps = request.in_epochs(max(200, tens(sizes.epochs * survey.n / n_rows)), survey.n, n_rows)
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
    request: Request, draft: Tables, named: dict[str, Any], survey: ImageSurvey, sizes: ImageSizes, size: int
) -> dict[str, Any]:
    """Return the [data], [image], [model] and [objective] tables for images of this size."""
    kind, channels = draft.model.kind, 1 if survey.is_grey else 3
    table: dict[str, Any] = {"data": request.data}
    model: dict[str, Any] = dict(named)
    if is_sized_here(request, named):
        model |= network_of(sizes)
    if kind == "resnet" and size <= SMALL and not request.exportable:
        model |= {"stem": "3x3"}
    if kind == "vit" and request.exportable:
        model |= {"pooling": "class"}  # Hugging Face has no ViT that classifies the mean over the patches
    table["image"] = {"size": size, "channels": channels, "augment": {}}
    table["model"] = model | {"size": size, "channels": channels}
    table["objective"] = {"kind": model_task(kind)}
    if model_task(kind) == "image-classification":
        table["image"]["augment"] = {"crop": max(1, size // 8), "flip": not survey.is_grey}
        table["model"]["n_classes"] = survey.n_classes
        table["objective"]["label_smoothing"] = 0.1
    return table


def is_sized_here(request: Request, named: dict[str, Any]) -> bool:
    """Whether zero configuration chooses the size of the network: of a ResNet without a preset."""
    model = request.override({"model": named})["model"]
    return model.get("kind") == "resnet" and "preset" not in model


def network_of(sizes: ImageSizes) -> dict[str, Any]:
    return {"block": "basic", "depths": sizes.depths, "widths": sizes.widths, "stem_width": sizes.widths[0]}


def announce(recipe: Tables, survey: ImageSurvey, n_parameters: int, request: Request) -> None:
    assert recipe.image is not None
    image, colours = recipe.image, "greyscale" if survey.is_grey else "colour"
    steps = {"crop": f"random crop (padding {image.augment.crop})", "flip": "horizontal flip"}
    augmentation = listed(words for name, words in steps.items() if getattr(image.augment, name))
    is_classifier = recipe.objective.kind == "image-classification"
    classes = f"{count(survey.n_classes, 'class', 'classes')}, " if is_classifier else ""
    print_plan(
        f"{count(survey.n, f'{colours} image')}, {classes}median size {survey.side} pixels (shorter side)",
        f"{recipe.model.preset or recipe.model.kind} with {count(n_parameters, 'parameter')}, "
        f"input {image.size} × {image.size} pixels, {augmentation or 'no augmentation'}",
        f"{count(recipe.train.steps, 'step')} with {count(recipe.train.tokens, 'image')} each, "
        f"{recipe.optim.kind}, {describe_optimizer(recipe, request)}",
    )


ROWS = 64  # images per step


def plan_finetune_images(request: Request, start: Path, old: Tables) -> Plan:
    """Choose a recipe to fine-tune an image classifier on other images."""
    method = request.method
    if (task := model_task(old.model.kind)) != "image-classification" or old.image is None:
        raise ConfigError(f"{start} is a model for {task}", "start from an image classifier")
    if method == "prefix":
        raise ConfigError("prefix tuning is not supported for image models", "choose --method full, lora or head")
    tables = old.tables()
    # GoogLeNet's auxiliary classifiers would start from random weights, and fine-tuning does not need them.
    model = tables["model"] | ({"auxiliary": []} if "auxiliary" in tables["model"] else {})
    image = {name: value for name, value in tables["image"].items() if name != "augment"}
    augment = {"crop": max(1, old.image.size // 8), "flip": old.image.channels == 3} if old.image.size else {}
    table: dict[str, Any] = {
        "data": request.data,
        "image": image | {"augment": augment},
        "model": model,
        "objective": {"kind": "image-classification", "label_smoothing": 0.1},
        **tuning_tables(start, old, method),
    }
    draft = request.recipe(table)
    network = tunable_outline(draft)
    n = survey_images(draft).n
    epochs = TUNE_IMAGES[method](n)
    steps = request.in_epochs(max(50, round(epochs * n / ROWS)), n, ROWS)
    table |= finetuning_tables(rate_for(method, width_of(network)), ROWS, steps, epochs, request)
    recipe = request.recipe(table)
    print_plan(
        f"{count(n, 'image')}",
        f"{METHOD_NAMES[method]} of {start}",
        f"{count(recipe.train.steps, 'step')} with {count(recipe.train.tokens, 'image')} each, "
        f"{describe_optimizer(recipe, request)}",
    )
    return Plan(recipe)


def fitting_size(recipe: Tables, side: int) -> int:
    """Return the image size set by the model's preset, or else the smallest valid size that is at least `side`.

    Networks that halve the size of an image many times need larger images.
    """
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
    """Count the training images, and estimate their size and colours from a sample of them."""
    source = recipe.data.source("train")
    n, images = some_images(source, SAMPLED)
    side = int(median(min(image.size) for image in images))
    return ImageSurvey(n, len(source.classes()), side, all(is_grey(image.mode) for image in images))


def is_grey(mode: str) -> bool:
    """Whether an image is greyscale. `mode` is its mode in Pillow; 1, L, LA and I;16 are greyscale."""
    return mode[0] in "1LIF"


def width_of(network: Any) -> int:
    """Return the number of features that the classification head reads."""
    config = network.config
    with torch.device("meta"):
        return int(network.hidden(ImageBatch.blank(2, config.size, config.channels)).size(-1))


def optimizer_for(network: nn.Module, n_rows: int) -> dict[str, Any]:
    """Choose AdamW for Transformers and SGD for other networks, with a lower learning rate without batch norm."""
    if any(isinstance(module, nn.LayerNorm) for module in network.modules()):
        return {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.98], "weight_decay": 0.05}
    peak = 0.1 if any(isinstance(module, _BatchNorm) for module in network.modules()) else 0.01
    return {"kind": "nesterov", "lr": peak * n_rows / 128, "weight_decay": 5e-4}
