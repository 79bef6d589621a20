"""Weights as they were published before safetensors, pytorch_model.bin or a .pth: pickles, read for `import` alone.

torch's reader is told to build tensors and nothing else, `weights_only`; whatever more a file asks for is refused.
"""

from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_json, read_weights, shard_names


def read_any_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor by name: from safetensors where there are any, else from pytorch_model.bin or all its parts."""
    if any(folder.glob("model*.safetensors*")) or not any(folder.glob("pytorch_model*.bin*")):
        return read_weights(folder)
    index = folder / "pytorch_model.bin.index.json"
    names = shard_names(read_json(index, "download it again"), index) if index.exists() else ["pytorch_model.bin"]
    weights: dict[str, Tensor] = {}
    for name in names:
        weights |= read_pickle(folder / name)
    return weights


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Tensors by name, or those that a checkpoint calls its `state_dict`."""
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, UnpicklingError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "it is cut short"
        raise CheckpointError(f"{path} cannot be read: {reason}", "download it again, or ask for safetensors") from None
    if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):  # among what a training noted
        tensors = tensors["state_dict"]
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise CheckpointError(f"{path} holds more than tensors by name", "give the weights of a model alone")
    return {name: tensor.contiguous() for name, tensor in tensors.items()}
