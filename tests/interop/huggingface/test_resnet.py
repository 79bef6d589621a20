import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import ResNetConfig as TheirConfig
from transformers import ResNetForImageClassification, ResNetModel

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.data.batch import ImageBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.resnet import export_config, export_folder, import_config, import_folder
from clearformer.models.resnet import ResNet, ResNetConfig

from ...bounds import assert_alike
from .conftest import read

B, C, N = 2, 3, 41
NAMES = ["dog", "cat", "tree", "river", "book"]
SIZES: dict[str, Any] = {
    "basic": {"embedding_size": 5, "hidden_sizes": [5, 7, 11], "depths": [1, 2, 1]},
    "bottleneck": {"embedding_size": 5, "hidden_sizes": [8, 12, 28], "depths": [2, 1, 3]},
}


def theirs_of(block: str = "bottleneck", kind: Any = ResNetForImageClassification, **fields: Any) -> Any:
    """A ResNet with every number random, those of its norms' averages too."""
    torch.manual_seed(0)
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: k for k, name in enumerate(NAMES)}}
    model = kind(TheirConfig(**{"num_channels": C, "layer_type": block, **labels, **SIZES[block], **fields})).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0.0, 0.3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            module.num_batches_tracked.fill_(7)
    return model


@torch.no_grad()
def assert_same(ours: ResNet, theirs: Any) -> None:
    """What leaves the stem and each stage, and the scores or the pooled vector."""
    pixels = torch.randn(B, C, N, N, dtype=theirs.dtype)
    out = theirs(pixels, output_hidden_states=True)

    def run(model: ResNet) -> list[Tensor]:
        states = list[Tensor]()
        parts = (model.stem_pool, *model.stages)
        hooks = [part.register_forward_hook(lambda *call: states.append(call[2])) for part in parts]
        said = model(ImageBatch(pixels.to(next(model.parameters()).dtype)))
        for hook in hooks:
            hook.remove()
        return [*states, said]

    last = out.logits if ours.config.n_classes else out.pooler_output.flatten(1)
    assert_alike(ours, run, [*out.hidden_states, last], n_terms=7 * 7 * C)  # the stem's sums are the longest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [ResNetForImageClassification, ResNetModel])
@pytest.mark.parametrize("block", SIZES)
def test_outputs_are_resnets_both_ways(tmp_path: Path, block: str, kind: Any, dtype: torch.dtype) -> None:
    theirs = theirs_of(block, kind).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    assert_same(ours, theirs)
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), classes=NAMES)
    back = kind.from_pretrained(tmp_path / "ours").eval()
    assert back.dtype == dtype
    assert_same(ours, back)
    written, original = (load_tensors(tmp_path / side / "model.safetensors")[0] for side in ("ours", "theirs"))
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert {key: wanted[key] for key in said} == said
    assert import_folder(tmp_path / "ours")[0] == ours.config


def test_what_one_side_cannot_express_is_refused() -> None:
    theirs = theirs_of().config.to_dict()
    for fields, named in (
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"downsample_in_bottleneck": True}, "downsample_in_bottleneck"),
        ({"downsample_in_first_stage": True}, "downsample_in_first_stage"),
        ({"hidden_sizes": None}, "lacks `hidden_sizes`"),
    ):
        with pytest.raises(CheckpointError, match=named):
            import_config({**theirs, **fields}, "config.json")
    for fields, named in (({"stem": "3x3"}, "3×3"), ({"shortcut": "none"}, "shortcut")):
        with pytest.raises(CheckpointError, match=named):
            export_config(ResNetConfig().changed(**fields))
