import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.openai_gpt import export_config, export_folder, import_config, import_folder
from clearformer.models.gpt import GPT, GPTConfig

H, K, V = 3, 7, 17


def gpt(**fields: Any) -> Any:
    """A GPT with every parameter random, its biases and gains too."""
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    torch.manual_seed(0)
    config = OpenAIGPTConfig(
        **{
            "vocab_size": V, "n_embd": H * K, "n_layer": 2, "n_head": H, "n_positions": 11,
            "layer_norm_epsilon": 1e-3, "attn_pdrop": 0.2, **fields,
        }
    )  # fmt: skip
    model = OpenAIGPTLMHeadModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_gpts_both_ways(tmp_path: Path, alike: Any, read: Any, dtype: torch.dtype, tied: bool) -> None:
    from transformers import OpenAIGPTLMHeadModel

    theirs = gpt(tie_word_embeddings=tied).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    alike(ours, theirs)
    assert ours.config.tied == tied
    export_folder(tmp_path / "ours", ours.config, weights_of(ours))
    back = OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "ours").eval()
    alike(ours, back)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert {key: wanted[key] for key in said} == said


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu", "swish"])
def test_every_activation(tmp_path: Path, alike: Any, read: Any, activation: str) -> None:
    theirs = gpt(afn=activation)
    theirs.save_pretrained(tmp_path)
    alike(read(tmp_path), theirs)


def test_our_own_model_goes_over_and_comes_back(tmp_path: Path, alike: Any) -> None:
    from transformers import OpenAIGPTLMHeadModel

    config = GPTConfig(vocab=V, n_layers=3, d_model=H * K, d_ff=4 * H * K, n_heads=H, max_length=11, residual="post")
    ours = GPT(config).eval()
    export_folder(tmp_path, config, weights_of(ours), bos=1, eos=2, pad=0)
    theirs = OpenAIGPTLMHeadModel.from_pretrained(tmp_path).eval()
    alike(ours, theirs)
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id, theirs.config.pad_token_id) == (1, 2, 0)
    found, weights = import_folder(tmp_path)
    assert found == config.changed(norm_eps=1e-5)
    assert all(weights[name].equal(tensor) for name, tensor in weights_of(ours).items())


def test_a_headless_file_with_masks_is_read(tmp_path: Path, alike: Any, read: Any) -> None:
    theirs = gpt()
    theirs.transformer.save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    assert "tokens_embed.weight" in weights
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 11, 11).tril() for layer in range(2)}
    save_file({**weights, **masks, "position_ids": torch.arange(11)}, tmp_path / "model.safetensors")
    alike(read(tmp_path), theirs)


def test_missing_and_extra_tensors_are_named(tmp_path: Path) -> None:
    gpt().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    save_file({**weights, "transformer.ln_f.bias": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has `transformer.ln_f.bias`"):
        import_folder(tmp_path)
    del weights["transformer.positions_embed.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks `transformer.positions_embed.weight`"):
        import_folder(tmp_path)


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CheckpointError, match="`gpt2`, not `openai-gpt`"):
        import_folder(tmp_path)


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"afn": "mish"}, "mish"), ({"embd_pdrop": 0.3}, "embd_pdrop"), ({"n_layer": None}, "lacks `n_layer`")],
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**gpt().config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"residual": "pre"}, "residual"),
        ({"final_norm": True}, "final_norm"),
        ({"d_ff": 13}, "d_ff"),
        ({"activation": "gelu"}, "gelu"),  # the exact one
        ({"n_kv_heads": 1}, "n_kv_heads"),
        ({"prompt": "full"}, "prompt"),
    ],
)
def test_configurations_gpt_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=f"GPT does not support .*{named}"):
        export_config(GPTConfig(residual="post").changed(**fields))
