"""Read weights in the older pickle formats, pytorch_model.bin and .pth. Only the command `import` does this.

torch.load reads them with `weights_only=True`, which runs no code: a file with objects other than tensors and plain
containers raises an error.
"""

from pathlib import Path

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_json, read_weights, shard_names


def read_any_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors by name: from safetensors if there are any, otherwise from pytorch_model.bin or its shards."""
    if any(folder.glob("model*.safetensors*")) or not any(folder.glob("pytorch_model*.bin*")):
        return read_weights(folder)
    index = folder / "pytorch_model.bin.index.json"
    names = shard_names(read_json(index, "download the file again"), index) if index.exists() else ["pytorch_model.bin"]
    weights: dict[str, Tensor] = {}
    for name in names:
        weights |= read_pickle(folder / name)
    return weights


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read tensors by name, from the top level of the file or from its entry `state_dict`."""
    try:
        if not path.is_file():
            raise OSError("it is not a regular file")
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged file makes the unpickler raise is of any type
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "the file is truncated"
        raise CheckpointError(
            f"{path} cannot be read: {reason}", "download the file again, or download the safetensors version"
        ) from None
    if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):  # a training checkpoint
        tensors = tensors["state_dict"]
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise CheckpointError(
            f"{path} contains objects other than named tensors",
            "save only the state_dict of the model: torch.save(model.state_dict(), …)",
        )
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not is_stored(tensor):
            raise CheckpointError(
                f"{path}: the tensor `{name}` is larger than what the file holds of it", "download the file again"
            )
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def is_stored(tensor: Tensor) -> bool:
    """Whether a tensor has its own number in the file for each element: strides of 0 would make it any size."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
