"""load: a model ready for use."""

from pathlib import Path
from typing import Any, TypeVar

from clearformer.errors import CheckpointError
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.layers.linear import pack
from clearformer.loading.folder import DEFAULT, task_of
from clearformer.loading.open import open_model
from clearformer.tasks.task import Pretrained

Kind = TypeVar("Kind", bound=Handle)


def load(model: str | Path = DEFAULT, device: str = "cpu") -> Any:
    """A trained model, from a run folder or a Hugging Face folder, as a handle of its kind (clearformer/handles/)."""
    return handle_of(open_packed(model, device))


def load_for(verb: str, model: str | Path, device: str = "cpu") -> Any:
    """As `load`, but refuse a model that lacks the verb."""
    handle = load(model, device)
    if verb not in handle.verbs:
        raise CheckpointError(f"{model} is {handle.kind}: it cannot {verb}", uses(handle))
    return handle


def load_as(kind: type[Kind], model: str | Path, device: str = "cpu") -> Kind:
    """As `load`, but refuse a model of another kind."""
    return require(kind, load(model, device), model)


def load_encoder(model: str | Path, device: str = "cpu", unit: bool | None = None) -> Any:
    """A model that embeds texts or images. `unit` scales vectors to length 1; None follows the model's own files."""
    pretrained = open_packed(model, device)
    return task_of(pretrained.recipe).encoder(pretrained, unit)


def load_image_model(model: str | Path, device: str = "cpu") -> ImageModel:
    """An image network as it was trained, layer by layer: to look into, not for speed."""
    return require(ImageModel, handle_of(open_model(model, device)), model)


def open_packed(model: str | Path, device: str) -> Pretrained:
    pretrained = open_model(model, device)
    pack(pretrained.network)
    return pretrained


def handle_of(pretrained: Pretrained) -> Handle:
    return task_of(pretrained.recipe).handle(pretrained)


def require(kind: type[Kind], handle: Handle, model: str | Path) -> Kind:
    if not isinstance(handle, kind):
        raise CheckpointError(f"{model} is {handle.kind}, not {kind.kind}", uses(handle))
    return handle


def uses(handle: Handle) -> str:
    return f"with it you can: {', '.join(handle.verbs)}"
