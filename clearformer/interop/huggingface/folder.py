"""A model folder as Hugging Face's `save_pretrained` writes it.

    config.json                     sizes and settings, in the model's own words
    model.safetensors               the weights, or, when they are many:
    model.safetensors.index.json    which of model-00001-of-00003.safetensors … holds which
    chat_template.jinja             how a conversation is written, where the model was taught to converse

Only safetensors are read: a pytorch_model.bin is a pickle, and opening one may run whatever its author wrote. The verb
`import` alone reads one, see `pickled.py`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearformer.checkpoint import atomically, load_tensors, open_tensors, write_json
from clearformer.checkpoint import read_shapes as shapes_in
from clearformer.errors import CheckpointError

HEAD, TEMPLATE = "lm_head.weight", "chat_template.jinja"
ROWS = 1024  # of two tables, compared at once
Reader = Callable[[Path], dict[str, Tensor]]
Shapes = Mapping[str, tuple[int, ...]]
Config = TypeVar("Config")


def importer(
    model_type: str,
    import_config: Callable[[Mapping[str, Any], str], Config],
    import_weights: Callable[[Mapping[str, Tensor], Config, str], dict[str, Tensor]],
    complete: Callable[[Config, Shapes, Path], Config] | None = None,
) -> tuple[Callable[[Path], Config], Callable[..., tuple[Config, dict[str, Tensor]]]]:
    """The `read_model_config` and the `import_folder` of a converter.

    `complete` adds what config.json does not say and the shapes of the tensors do, such as the number of classes. Both
    functions call it, so that they cannot disagree.
    """

    def read_settings(folder: Path) -> Config:
        return import_config(read_config(folder, model_type), str(folder / "config.json"))

    def with_shapes(config: Config, shapes: Shapes, folder: Path) -> Config:
        return config if complete is None else complete(config, shapes, folder)

    def read_model_config(folder: Path) -> Config:
        """Our configuration of a model as `save_pretrained` left it; no tensor is read."""
        return with_shapes(read_settings(folder), read_shapes(folder), folder)

    def import_folder(folder: Path, read: Reader = read_weights) -> tuple[Config, dict[str, Tensor]]:
        """A model as `save_pretrained` left it: its configuration and its weights, both in our words."""
        config, weights = read_settings(folder), read(folder)
        config = with_shapes(config, shapes_of(weights), folder)
        return config, import_weights(weights, config, str(folder))

    return read_model_config, import_folder


def exporter(
    export_config: Callable[..., dict[str, Any]], export_weights: Callable[..., dict[str, Tensor]]
) -> Callable[..., None]:
    """The `export_folder` of a converter."""

    def export_folder(folder: Path, config: Any, weights: Mapping[str, Tensor], **more: Any) -> None:
        """The folder that `from_pretrained` reads; `more` is for config.json, such as the tokens of `generate`."""
        theirs = export_weights(weights, config)
        write_folder(folder, {**export_config(config, **more), **precision(theirs)}, theirs)

    return export_folder


def read_config(folder: Path, model_type: str) -> dict[str, Any]:
    """config.json, which must be that of a `model_type`."""
    config = read_json(folder / "config.json", f"name a folder that holds a {model_type} model")
    if config.get("model_type") != model_type:
        raise CheckpointError(
            f"{folder} holds a model of type `{config.get('model_type')}`, not `{model_type}`",
            f"name a folder whose config.json says {model_type}",
        )
    return config


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor by name, from one file or from all that the index names."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        weights |= load_tensors(path)[0]
    return weights


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by name, from the headers of the same files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        shapes |= shapes_in(path)
    return shapes


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def is_copy(folder: Path, name: str, other: str) -> bool:
    """Whether two tensors of a folder are equal. They are compared some rows at a time, so neither is in memory."""
    places = {tensor: path for path in weight_files(folder) for tensor in shapes_in(path)}
    with open_tensors(places[name]) as one, open_tensors(places[other]) as two:
        a, b = one.get_slice(name), two.get_slice(other)
        if a.get_shape() != b.get_shape():
            return False
        starts = range(0, a.get_shape()[0], ROWS) if a.get_shape() else ()
        return all(torch.equal(a[i : i + ROWS], b[i : i + ROWS]) for i in starts)


def weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the files that the index names."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if not whole.exists() and index.exists():
        return [folder / name for name in shard_names(read_json(index, "download it again"), index)]
    if not whole.exists() and any(folder.glob("pytorch_model*.bin*")):
        raise CheckpointError(
            f"{folder} has its weights in pytorch_model.bin only, a pickle, which is not opened here",
            f"read it once, without running what may be in it: clearformer import {folder} OUT",
        )
    return [whole]


def shard_names(index: Mapping[str, Any], where: Path) -> list[str]:
    """The files that an index names, which must lie beside it."""
    names = sorted(set(index.get("weight_map", {}).values()))
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{where} names `{name}`, a file outside its folder", "download it again")
    return names


def read_template(folder: Path) -> str | None:
    """How a conversation is written for the model, in the Jinja language; None if it was not taught to converse."""
    if (path := folder / TEMPLATE).exists():
        return path.read_text(encoding="utf-8")
    if not (path := folder / "tokenizer_config.json").exists():
        return None
    told = read_json(path, "copy the file again").get("chat_template")
    if isinstance(told, list):  # several by name
        told = next((one.get("template") for one in told if one.get("name") == "default"), None)
    return told if isinstance(told, str) else None


def with_head(theirs: Mapping[str, Tensor], prefix: str, first: str) -> dict[str, Tensor]:
    """The names as a model with a head has them; one saved without it has `first`, and all others, without `prefix`."""
    if first not in theirs:
        return dict(theirs)
    return {name if name == HEAD else f"{prefix}{name}": tensor for name, tensor in theirs.items()}


def write_folder(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """What `from_pretrained` reads. The header must say which framework wrote it, or older versions refuse the file."""
    with atomically(folder / "model.safetensors") as draft:
        save_file({name: tensor.cpu().contiguous() for name, tensor in weights.items()}, draft, {"format": "pt"})
    write_json(folder / "config.json", config)


def precision(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """The line of config.json that lets `from_pretrained` keep the type of the weights."""
    return {"torch_dtype": str(next(iter(weights.values())).dtype).removeprefix("torch.")}


def read_json(path: Path, hint: str) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", hint) from None
    if not isinstance(table, dict):
        raise CheckpointError(f"{path} holds no table of settings", hint)
    return table
