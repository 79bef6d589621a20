import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import ViTConfig as TheirConfig
from transformers import ViTForImageClassification, ViTModel

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.data.batch import ImageBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.class_names import class_names
from clearformer.interop.huggingface.vit import export_config, export_folder, import_config, import_folder
from clearformer.models.vit import ViT, ViTConfig

from ...bounds import assert_alike
from .conftest import read, streams

B, C, N, PATCH, H, K, F = 2, 3, 15, 5, 7, 3, 13
NAMES = ["dog", "cat", "tree", "river", "book"]


def theirs_of(kind: Any = ViTForImageClassification, **fields: Any) -> Any:
    """A ViT with every parameter random, biases too."""
    torch.manual_seed(0)
    config = TheirConfig(
        **{
            "image_size": N, "patch_size": PATCH, "num_channels": C, "hidden_size": H * K, "num_hidden_layers": 3,
            "num_attention_heads": H, "intermediate_size": F, "hidden_dropout_prob": 0.2,
            "attention_probs_dropout_prob": 0.3, "id2label": dict(enumerate(NAMES)),
            "label2id": {name: k for k, name in enumerate(NAMES)}, **fields,
        }
    )  # fmt: skip
    model = kind(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    return model


@torch.no_grad()
def assert_same(ours: ViT, theirs: Any, size: int = N) -> None:
    """Every hidden state, and the scores; what leaves their last block is not yet normed."""
    pixels = torch.randn(B, C, size, size, dtype=theirs.dtype)
    out = theirs(pixels, output_hidden_states=True, interpolate_pos_encoding=size != N)

    def run(model: ViT) -> list[Tensor]:
        batch = ImageBatch(pixels.to(model.patches.conv.weight.dtype))
        *states, last = streams(model.encoder, lambda: model.hidden(batch))
        return [*states, model(batch) if model.config.n_classes else last]

    last = out.logits if ours.config.n_classes else out.last_hidden_state[:, 0]
    assert_alike(ours, run, [*out.hidden_states[:-1], last], n_terms=C * PATCH**2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [ViTForImageClassification, ViTModel])
def test_outputs_are_vits_both_ways(tmp_path: Path, kind: Any, dtype: torch.dtype) -> None:
    theirs = theirs_of(kind).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    assert_same(ours, theirs)
    assert class_names(tmp_path / "theirs", 5) == NAMES
    assert ours.config.n_classes == (0 if kind is ViTModel else 5)
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), classes=NAMES)
    more = {"add_pooling_layer": False} if kind is ViTModel else {}
    back = kind.from_pretrained(tmp_path / "ours", **more).eval()
    assert back.dtype == dtype
    assert_same(ours, back)
    written, original = (load_tensors(tmp_path / side / "model.safetensors")[0] for side in ("ours", "theirs"))
    original = {name: tensor for name, tensor in original.items() if not name.startswith("pooler.")}
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert {key: wanted[key] for key in said} == said
    assert import_folder(tmp_path / "ours")[0] == ours.config


@pytest.mark.parametrize("size", [10, 25])
def test_positions_are_stretched_as_theirs_are(tmp_path: Path, size: int) -> None:
    theirs = theirs_of().double()
    theirs.save_pretrained(tmp_path)
    assert_same(read(tmp_path, torch.float64), theirs, size)


@pytest.mark.parametrize("name", ["relu", "gelu_new", "silu"])
def test_every_activation(tmp_path: Path, name: str) -> None:
    theirs = theirs_of(hidden_act=name, layer_norm_eps=1e-3)
    theirs.save_pretrained(tmp_path)
    assert_same(read(tmp_path), theirs)


def test_missing_and_extra_tensors_are_named(tmp_path: Path) -> None:
    theirs_of().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    name = "vit.encoder.layer.2.output.dense.bias"
    tensor = weights.pop(name)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"lacks `{name}`"):
        import_folder(tmp_path)
    save_file({**weights, name: tensor, "decoder.0.weight": tensor.clone()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has `decoder\.0\.weight`"):
        import_folder(tmp_path)


def test_what_one_side_cannot_express_is_refused() -> None:
    theirs = theirs_of().config.to_dict()
    for fields, named in (({"qkv_bias": False}, "qkv_bias"), ({"hidden_act": "mish"}, "activation `mish`")):
        with pytest.raises(CheckpointError, match=named):
            import_config({**theirs, **fields}, "config.json")
    for fields, named in (({"pooling": "mean"}, "pooling"), ({"activation_dropout": 0.1}, "activation_dropout")):
        with pytest.raises(CheckpointError, match=named):
            export_config(ViTConfig().changed(**fields))
