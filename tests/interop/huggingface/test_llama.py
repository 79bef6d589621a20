import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.llama import export_config, export_folder, import_config, import_folder
from clearformer.models.gpt import GPT, GPTConfig

H, G, K, F, V = 6, 2, 10, 13, 17
SMALL: dict[str, Any] = {
    "vocab": V, "n_layers": 2, "d_model": H * K, "d_ff": F, "n_heads": H, "n_kv_heads": G, "max_length": 11,
    "norm": "rms", "norm_eps": 1e-5, "activation": "swiglu", "positions": {"kind": "rotary", "base": 700.0},
    "bias": False, "dropout": 0.0, "attention_dropout": 0.2, "tied": False,
}  # fmt: skip


def llama(**fields: Any) -> Any:
    """A Llama with every parameter random, its gains too."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": V, "hidden_size": H * K, "intermediate_size": F, "num_hidden_layers": 2,
            "num_attention_heads": H, "num_key_value_heads": G, "max_position_embeddings": 11, "rms_norm_eps": 1e-3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}, "attention_dropout": 0.2, **fields,
        }
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.7 if parameter.dim() == 1 else 0.0, 0.3)
    return model


class Angles(nn.Module):
    """Cosines and sines in float64."""

    def __init__(self, base: float, width: int) -> None:
        super().__init__()
        self.omega = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = (position_ids[..., None] * self.omega).repeat(1, 1, 2)
        return angles.cos(), angles.sin()


def exact(theirs: Any) -> Any:
    """transformers takes norms and angles in float32, whatever the model's precision; here they are in float64."""
    config, eps = theirs.config, theirs.config.rms_norm_eps
    for parent in list(theirs.modules()):
        for name, child in parent.named_children():
            if name.endswith("norm"):
                norm = nn.RMSNorm(config.hidden_size, eps=eps, dtype=torch.float64)
                norm.weight = child.weight
                setattr(parent, name, norm)
    theirs.model.rotary_emb = Angles(config.rope_parameters["rope_theta"], config.head_dim)
    return theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("heads", [{}, {"num_key_value_heads": H}, {"num_key_value_heads": 1, "head_dim": 14}])
def test_logits_are_llamas_both_ways(
    tmp_path: Path, alike: Any, read: Any, dtype: torch.dtype, tied: bool, heads: dict[str, int]
) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs = llama(tie_word_embeddings=tied, **heads).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    alike(ours, exact(theirs) if dtype == torch.float64 else theirs)
    assert ours.config.tied == tied
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), bos=1, eos=2)
    back = LlamaForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert back.dtype == dtype
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    alike(ours, exact(back) if dtype == torch.float64 else back)
    said, wanted = (LlamaConfig.from_pretrained(tmp_path / side).to_dict() for side in ("ours", "theirs"))
    assert said == wanted


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_pytorch_tanh"])
def test_every_activation(tmp_path: Path, alike: Any, read: Any, activation: str) -> None:
    theirs = llama(hidden_act=activation)
    theirs.save_pretrained(tmp_path)
    alike(read(tmp_path), theirs)
    assert export_config(import_folder(tmp_path)[0])["hidden_act"] == activation


@pytest.mark.parametrize("changes", [{}, {"d_head": 14, "tied": True}, {"n_kv_heads": H, "activation": "geglu"}])
def test_our_own_model_goes_over_and_comes_back(tmp_path: Path, alike: Any, changes: dict[str, Any]) -> None:
    from transformers import LlamaForCausalLM

    config = GPTConfig(**SMALL | changes)
    ours = GPT(config).eval()
    export_folder(tmp_path, config, weights_of(ours))
    alike(ours, LlamaForCausalLM.from_pretrained(tmp_path).eval())
    found, weights = import_folder(tmp_path)
    assert found == config
    assert weights.keys() == weights_of(ours).keys()
    assert all(weights[name].equal(tensor) for name, tensor in weights_of(ours).items())


def test_dropout_that_llama_does_not_know_stays_behind() -> None:
    trained = GPTConfig(**SMALL | {"dropout": 0.3, "activation_dropout": 0.1})
    assert import_config(export_config(trained), "config.json") == GPTConfig(**SMALL)


def test_older_files_hold_frequencies_and_say_the_base_by_itself(tmp_path: Path, alike: Any, read: Any) -> None:
    theirs = llama(tie_word_embeddings=True)
    theirs.save_pretrained(tmp_path)
    weights = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}  # with a copy of the tied table
    weights |= {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(5) for layer in range(2)}
    save_file(weights, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"], config["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_theta": 700.0, "rope_scaling": None}))
    alike(read(tmp_path), theirs)


def test_a_model_saved_without_its_head(tmp_path: Path, alike: Any, read: Any) -> None:
    theirs = llama(tie_word_embeddings=True)
    theirs.model.save_pretrained(tmp_path)
    alike(read(tmp_path), theirs)
    llama().model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"lacks `lm_head.weight`"):
        import_folder(tmp_path)


def test_missing_extra_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    key = weights.pop("model.layers.1.self_attn.k_proj.weight")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks `model.layers.1.self_attn.k_proj.weight`"):
        import_folder(tmp_path)
    weights["model.layers.1.self_attn.k_proj.weight"] = key[:, 1:].contiguous()
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"shapes differ: \(60, 60\), \(20, 59\) and \(20, 60\)"):
        import_folder(tmp_path)
    weights["model.layers.1.self_attn.k_proj.weight"] = key
    save_file({**weights, "model.layers.1.self_attn.k_proj.bias": key[0].clone()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has `model.layers.1.self_attn.k_proj.bias`"):
        import_folder(tmp_path)


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    with pytest.raises(CheckpointError, match="`mistral`, not `llama`"):
        import_folder(tmp_path)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 5e5}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"rope_parameters": LLAMA3}, "type `llama3` with factor"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "type `linear` with factor"),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "type `default` with partial_rotary_factor",
        ),
        ({"hidden_act": "relu2"}, "relu2"),
        ({"rms_norm_eps": None}, "lacks `rms_norm_eps`"),
    ],
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**llama().config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"residual": "post", "final_norm": True}, "residual"),
        ({"final_norm": False}, "final_norm"),
        ({"norm": "layer"}, "norm"),
        ({"bias": True}, "bias"),
        ({"head_bias": True}, "head_bias"),
        ({"scale_embedding": True}, "scale_embedding"),
        ({"prompt": "full"}, "prompt"),
        ({"positions": {"kind": "alibi"}}, "positions"),
        ({"activation": "silu"}, "silu"),
        ({"attention_scale": 1.0}, "attention_scale"),
    ],
)
def test_configurations_llama_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=f"Llama does not support .*{named}"):
        export_config(GPTConfig(**SMALL).changed(**fields))
