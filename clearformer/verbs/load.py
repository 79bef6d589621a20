"""load: open a trained model for inference."""

from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from clearformer.errors import CheckpointError, ConfigError
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.translator import Translator
from clearformer.handles.writer import Writer
from clearformer.interop.engines import decoder_for
from clearformer.layers.int8 import quantize
from clearformer.layers.linear import pack
from clearformer.loading.folder import DEFAULT, task_of
from clearformer.loading.open import handle_of, open_model
from clearformer.tasks.task import Pretrained
from clearformer.training.journal import console

PRECISIONS = ("float32", "bfloat16", "int8")
Kind = TypeVar("Kind", bound=Handle)


def load(model: str | Path = DEFAULT, device: str = "cpu", engine: str = "auto", precision: str = "float32") -> Any:
    """Load a run folder, Hugging Face folder or bundled model, and return its handle (clearformer/handles/).

    handle(inputs) does what the model is for: a translator translates, a classifier predicts. One text gives one
    result, and a list of texts gives a list. Printed, a handle says what it is; `handle.verbs` says what it can do.
    `engine` chooses how a handle that generates text does so: "auto", "torch" (the plain decoder), "compiled" (steps
    are compiled when they are needed first, if they are not in the cache), or "ctranslate2". `precision` is the dtype
    of the weights; "bfloat16" is faster on recent GPUs and "int8" on CPUs, and close choices between tokens may differ.
    """
    if engine == "compiled" and precision != "float32":
        raise ConfigError(f"the engine `compiled` computes in float32, not in {precision}", "omit one of the two")
    handle = handle_of(open_packed(model, device, precision))
    if engine != "auto":
        if not isinstance(handle, Translator | Writer):
            raise CheckpointError(f"{model} is {handle.kind}: it generates no text", "omit --engine")
        handle.decoder = decoder_for(handle.model, engine, console.print)
    handle.lens = partial(look_inside, handle)
    return handle


def look_inside(handle: Handle, text: str, target: str | None = None) -> Any:
    """Look inside a model at work on a text, an image file or a recording: `look["NAME"]` is an activation.

    `target` is the translation that a translator reads, by default its own.
    """
    from clearformer.verbs.look import Look  # needs matplotlib

    return Look(handle, text, target)


def load_for(
    verb: str, model: str | Path, device: str = "cpu", engine: str = "auto", precision: str = "float32"
) -> Any:
    """Load a model, and refuse it if it does not support the verb."""
    handle = load(model, device, engine, precision)
    require_verb(verb, handle, model)
    return handle


def require_verb(verb: str, handle: Handle, model: str | Path) -> None:
    """Raise CheckpointError if a handle does not support the verb. `model` is its name in the message."""
    if verb not in handle.verbs:
        ability = "say whether a text follows" if verb == "follows" else verb
        raise CheckpointError(f"{model} is {handle.kind}: it cannot {ability}", uses(handle))


def load_as(kind: type[Kind], model: str | Path, device: str = "cpu") -> Kind:
    """Load a model, and refuse it if its handle is of another class."""
    return require(kind, load(model, device), model)


def load_encoder(model: str | Path, device: str = "cpu", unit: bool | None = None) -> Any:
    """Load a model that embeds texts or images.

    `unit` scales the vectors to length 1; None uses the setting in the files of the model.
    """
    pretrained = open_packed(model, device)
    encoder = task_of(pretrained.recipe).encoder(pretrained, unit)
    encoder.path = pretrained.path
    return encoder


def load_image_model(model: str | Path, device: str = "cpu") -> ImageModel:
    """Load an image model with unpacked layers, for inspection rather than speed."""
    return require(ImageModel, handle_of(open_model(model, device)), model)


def open_packed(model: str | Path, device: str, precision: str = "float32") -> Pretrained:
    if precision not in PRECISIONS:
        raise ConfigError(f"there is no precision `{precision}` for inference", f"use {', '.join(PRECISIONS)}")
    pretrained = open_model(model, device)
    if precision == "int8":
        quantize(pretrained.network)
    elif precision == "bfloat16":
        pretrained.network.to(torch.bfloat16)
    pack(pretrained.network)
    return pretrained


def require(kind: type[Kind], handle: Handle, model: str | Path) -> Kind:
    if not isinstance(handle, kind):
        raise CheckpointError(f"{model} is {handle.kind}, not {kind.kind}", uses(handle))
    return handle


def uses(handle: Handle) -> str:
    return f"{handle.kind} supports {', '.join(handle.verbs)}"
