"""Read and write model folders as Hugging Face's `save_pretrained` does.

    config.json                     sizes and settings, under the names of the model family
    model.safetensors               the weights, in one file
    model.safetensors.index.json    large models: the name of each tensor's file, model-00001-of-00003.safetensors …
    chat_template.jinja             the format of a conversation, for chat models

Only safetensors are read: a pytorch_model.bin is a pickle, which can run arbitrary code when opened. Only the command
`import` reads one, see `pickled.py`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearformer.checkpoint import atomically, load_tensors, open_tensors, write_json
from clearformer.checkpoint import read_shapes as shapes_in
from clearformer.errors import CheckpointError
from clearformer.small_files import read_json as read_small_json
from clearformer.small_files import read_small

HEAD, TEMPLATE = "lm_head.weight", "chat_template.jinja"
CHUNK_ROWS = 1024  # rows compared at a time
Reader = Callable[[Path], dict[str, Tensor]]
Shapes = Mapping[str, tuple[int, ...]]
Config = TypeVar("Config")


def importer(
    model_type: str,
    import_config: Callable[[Mapping[str, Any], str], Config],
    import_weights: Callable[[Mapping[str, Tensor], Config, str], dict[str, Tensor]],
    complete: Callable[[Config, Shapes, Path], Config] | None = None,
) -> tuple[Callable[[Path], Config], Callable[..., tuple[Config, dict[str, Tensor]]]]:
    """Build the functions `read_model_config` and `import_folder` of a converter.

    `complete` adds settings that config.json lacks but tensor shapes show, such as the number of classes.
    Both functions call it, so their results agree.
    """

    def read_settings(folder: Path) -> Config:
        return import_config(read_config(folder, model_type), str(folder / "config.json"))

    def with_shapes(config: Config, shapes: Shapes, folder: Path) -> Config:
        return config if complete is None else complete(config, shapes, folder)

    def read_model_config(folder: Path) -> Config:
        """Return our configuration of a model saved by `save_pretrained`. No tensors are read."""
        return with_shapes(read_settings(folder), read_shapes(folder), folder)

    def import_folder(folder: Path, read: Reader = read_weights) -> tuple[Config, dict[str, Tensor]]:
        """Import the configuration and weights of a model saved by `save_pretrained`, both in our format."""
        config, weights = read_settings(folder), read(folder)
        config = with_shapes(config, shapes_of(weights), folder)
        return config, import_weights(weights, config, str(folder))

    return read_model_config, import_folder


def exporter(
    export_config: Callable[..., dict[str, Any]], export_weights: Callable[..., dict[str, Tensor]]
) -> Callable[..., None]:
    """Build the function `export_folder` of a converter."""

    def export_folder(folder: Path, config: Any, weights: Mapping[str, Tensor], **more: Any) -> None:
        """Write a folder for `from_pretrained`. `more`, such as ids of special tokens, is passed to `export_config`."""
        theirs = export_weights(weights, config)
        write_folder(folder, {**export_config(config, **more), **precision(theirs)}, theirs)

    return export_folder


def read_config(folder: Path, model_type: str) -> dict[str, Any]:
    """Read config.json, and raise an error unless it has this `model_type`."""
    config = read_json(folder / "config.json", f"choose a folder with a {model_type} model")
    if config.get("model_type") != model_type:
        raise CheckpointError(
            f"{folder}: the model_type is `{config.get('model_type')}`, not `{model_type}`",
            f"choose a folder with a {model_type} model",
        )
    return config


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors by name, from model.safetensors or from the files listed in the index."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        weights |= load_tensors(path)[0]
    return weights


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of all tensors by name, from the headers of the weight files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        shapes |= shapes_in(path)
    return shapes


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def is_copy(folder: Path, name: str, other: str) -> bool:
    """Whether two tensors of a folder are equal. A few rows are compared at a time, so that neither is loaded whole."""
    places = {tensor: path for path in weight_files(folder) for tensor in shapes_in(path)}
    with open_tensors(places[name]) as one, open_tensors(places[other]) as two:
        a, b = one.get_slice(name), two.get_slice(other)
        if a.get_shape() != b.get_shape():
            return False
        starts = range(0, a.get_shape()[0], CHUNK_ROWS) if a.get_shape() else ()
        return all(torch.equal(a[i : i + CHUNK_ROWS], b[i : i + CHUNK_ROWS]) for i in starts)


def weight_files(folder: Path) -> list[Path]:
    """Return the paths of the weight files: model.safetensors, or the files listed in the index."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if not whole.exists() and index.exists():
        return [folder / name for name in shard_names(read_json(index, "download the file again"), index)]
    if not whole.exists() and any(folder.glob("pytorch_model*.bin*")):
        raise CheckpointError(
            f"{folder} has its weights only in pytorch_model.bin, a pickle, which can run code when opened",
            f"convert it safely: clearformer import {folder} OUT",
        )
    return [whole]


def shard_names(index: Mapping[str, Any], where: Path) -> list[str]:
    """Return the names of the files listed in an index. A file in another folder raises an error."""
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{where} does not list the files of the weights", "download the file again")
    names = sorted(set(places.values()))
    for name in names:
        if Path(name).name != name or "\0" in name:
            raise CheckpointError(f"{where} lists `{name[:99]}`, a file outside its folder", "download the file again")
    return names


def read_template(folder: Path) -> str | None:
    """Return the model's chat template, written in Jinja, or None if it has no template."""
    if (path := folder / TEMPLATE).exists():
        try:
            return read_small(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(f"{path} cannot be read: {reason}", "copy the file again") from None
    if not (path := folder / "tokenizer_config.json").exists():
        return None
    template = read_json(path, "download the file again").get("chat_template")
    if isinstance(template, list):  # several, by name
        tables = (one for one in template if isinstance(one, dict))
        template = next((one.get("template") for one in tables if one.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def with_head(theirs: Mapping[str, Tensor], prefix: str, first: str) -> dict[str, Tensor]:
    """If the tensor `first` exists, the model was saved without a head, so its names lack `prefix`: add it."""
    if first not in theirs:
        return dict(theirs)
    return {name if name == HEAD else f"{prefix}{name}": tensor for name, tensor in theirs.items()}


def write_folder(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write the files for `from_pretrained`; older versions of it need {"format": "pt"} in the safetensors header."""
    with atomically(folder / "model.safetensors") as draft:
        save_file({name: tensor.cpu().contiguous() for name, tensor in weights.items()}, draft, {"format": "pt"})
    write_json(folder / "config.json", config)


def precision(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the entry of config.json that makes `from_pretrained` keep the dtype of the weights."""
    return {"torch_dtype": str(next(iter(weights.values())).dtype).removeprefix("torch.")}


def read_json(path: Path, hint: str) -> dict[str, Any]:
    try:
        table = read_small_json(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", hint) from None
    if not isinstance(table, dict):
        raise CheckpointError(f"{path} is not a JSON object", hint)
    return table
