"""What torchvision's networks answer, with weights made by rule: writes answers.json, which test_parity.py reads.

    python tests/interop/torchvision/make_answers.py        wherever torchvision is installed; a minute on a CPU

Both ways: `theirs` are the scores of their network with rule-made weights under their names, `ours` those of the same
network with rule-made weights under our names, which went over through our converter. Only scores are stored: a weight
is a function of its tensor's name and its place there.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.checkpoint import weights_of
from clearformer.interop.torchvision.convert import export_weights
from clearformer.models.build import build_model, model_config

ANSWERS = Path(__file__).with_name("answers.json")
CLASSES, IMAGES = 17, 2
CASES: dict[str, tuple[str, int]] = {  # torchvision's name -> our preset, pixels a side
    "alexnet": ("alexnet-torchvision", 97),
    "vgg11_bn": ("vgg11-bn", 61),
    "vgg16": ("vgg16", 61),
    "googlenet": ("googlenet-torchvision", 97),
    "resnet18": ("resnet18", 97),
    "resnet50": ("resnet50", 97),
    "vit_b_16": ("vit-b-16", 224),
}


def by_rule(name: str, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Numbers that a name and a shape determine, to the last bit: a hash of each place, in the range of its kind."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(0)
    x = np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(crc32(name.encode()))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):  # MurmurHash3's last steps
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    noise = torch.from_numpy(x.astype(np.float32) / 2**31 - 1).view(tuple(shape))  # from −1 to 1
    if name.endswith("running_var"):
        return 1 + noise / 2
    if len(shape) == 1:
        return noise / 10 + (1 if name.endswith("weight") else 0)
    return noise * (0.5 if len(shape) == 3 else (6 / noise[0].numel()) ** 0.5)  # tables; He's variance


def images(size: int) -> Tensor:
    return by_rule("pictures", (IMAGES, 3, size, size)).mul(30)  # the seed of answers.json; (6 / fan_in)^½ is small


def our_config(preset: str) -> Any:
    return model_config(preset).changed(n_classes=CLASSES)


def ruled(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: by_rule(name, tensor.shape) for name, tensor in tensors.items()}


def signature(tensors: dict[str, Tensor]) -> str:
    """Of all names and shapes."""
    return sha256("\n".join(sorted(f"{name} {tuple(t.shape)}" for name, t in tensors.items())).encode()).hexdigest()


@torch.no_grad()
def scores(model: nn.Module, size: int) -> list[list[list[float]]]:
    """Of the head, then of the auxiliary networks in their order; norms and dropouts as in use."""
    model.eval()
    model.training = True  # of the outermost module alone: GoogLeNet then tells what its auxiliary networks say
    said = model(images(size))
    said = [said.logits, said.aux_logits1, said.aux_logits2] if hasattr(said, "logits") else [said]
    return [[[float(f"{x:.7g}") for x in row] for row in one.tolist()] for one in said]


def main() -> None:
    import torchvision

    found: dict[str, Any] = {}
    for name, (preset, size) in CASES.items():
        more = {"init_weights": False, "aux_logits": True} if name == "googlenet" else {}
        model = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **more)
        config = our_config(preset)
        with torch.device("meta"):
            ours = weights_of(build_model(config))
        model.load_state_dict(ruled(model.state_dict()))
        found[name] = {"signature": signature(model.state_dict()), "theirs": scores(model, size)}
        model.load_state_dict(export_weights(ruled(ours), config))
        found[name]["ours"] = scores(model, size)
        print(name, found[name]["theirs"][0][0][:3], found[name]["ours"][0][0][:3], flush=True)
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    ANSWERS.write_text(json.dumps({"versions": versions, **found}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
