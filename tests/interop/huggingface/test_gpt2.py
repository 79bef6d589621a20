import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearformer.checkpoint import load_tensors, load_weights, weights_of
from clearformer.data.batch import TextBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.gpt2 import export_config, export_folder, import_config, import_folder
from clearformer.models.gpt import GPT, GPTConfig

H, K, F, V = 3, 7, 13, 17


def gpt2(**fields: Any) -> Any:
    """A GPT-2 with every parameter random, its biases and gains too."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        **{
            "vocab_size": V, "n_embd": H * K, "n_layer": 2, "n_head": H, "n_inner": F, "n_positions": 11,
            "layer_norm_epsilon": 1e-3, "attn_pdrop": 0.2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            **fields,
        }
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_gpt2s_both_ways(tmp_path: Path, alike: Any, read: Any, dtype: torch.dtype, tied: bool) -> None:
    from transformers import GPT2LMHeadModel

    theirs = gpt2(tie_word_embeddings=tied).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    alike(ours, theirs)
    assert ours.config.tied == tied
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), bos=1, eos=2, pad=0)
    back = GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval()
    alike(ours, back)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert {key: wanted[key] for key in said} == said


def test_a_prefix_is_what_gpt2_makes_of_the_same_mask(tmp_path: Path, read: Any) -> None:
    theirs = gpt2().double()
    theirs.save_pretrained(tmp_path)
    tokens = torch.randint(V, (2, 5))
    documents, positions = torch.tensor([[0, 0, 0, 1, 1], [2, 2, 3, 3, 3]]), torch.tensor([[0, 1, 2, 0, 1]] * 2)
    prefix = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0]]).bool()
    seen = torch.ones(5, 5).tril().bool() | prefix[:, None]
    seen &= documents[:, None] == documents[:, :, None]
    with torch.no_grad():
        ours = read(tmp_path, torch.float64)(TextBatch(tokens, tokens, documents, positions, prefix))
        mask = torch.zeros(2, 1, 5, 5).double().masked_fill(~seen[:, None], float("-inf"))
        said = theirs(input_ids=tokens, position_ids=positions, attention_mask=mask).logits
    torch.testing.assert_close(ours, said, atol=1e-9, rtol=0)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu"])
@pytest.mark.parametrize("inner", [None, F])
def test_every_activation_and_width(tmp_path: Path, alike: Any, read: Any, activation: str, inner: int | None) -> None:
    theirs = gpt2(activation_function=activation, n_inner=inner)
    theirs.save_pretrained(tmp_path)
    alike(read(tmp_path), theirs)
    assert export_config(import_folder(tmp_path)[0])["n_inner"] == inner


def test_our_own_model_goes_over_and_comes_back(tmp_path: Path, alike: Any) -> None:
    from transformers import GPT2LMHeadModel

    config = GPTConfig(vocab=V, n_layers=3, d_model=H * K, d_ff=F, n_heads=H, max_length=11, tied=False)
    ours = GPT(config).eval()
    export_folder(tmp_path, config, weights_of(ours))
    alike(ours, GPT2LMHeadModel.from_pretrained(tmp_path).eval())
    found, weights = import_folder(tmp_path)
    assert found == config.changed(norm_eps=1e-5)  # which it says in so many words
    assert weights.keys() == weights_of(ours).keys()
    assert all(weights[name].equal(tensor) for name, tensor in weights_of(ours).items())


def test_a_model_saved_without_its_head_has_that_of_its_embedding(tmp_path: Path, alike: Any, read: Any) -> None:
    theirs = gpt2()
    theirs.transformer.save_pretrained(tmp_path)
    assert "wte.weight" in load_tensors(tmp_path / "model.safetensors")[0]
    alike(read(tmp_path), theirs)


def test_copies_of_the_tied_table_and_masks_are_passed_over(tmp_path: Path, alike: Any, read: Any) -> None:
    """As the files of the first GPT-2s are: no prefix, and a mask in every layer."""
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    older = {name.removeprefix("transformer."): tensor.clone() for name, tensor in theirs.state_dict().items()}
    assert "lm_head.weight" in older
    for layer in range(2):
        older[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 11, 11).tril()
        older[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(older, tmp_path / "model.safetensors")
    alike(read(tmp_path), theirs)


def test_settings_that_older_files_leave_out(tmp_path: Path) -> None:
    """What config.json of the first GPT-2s says, and no more."""
    sizes = {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
    assert import_config({"model_type": "gpt2", **sizes}, "config.json") == GPTConfig(norm_eps=1e-5)


def test_missing_and_extra_tensors_are_named(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    bias = weights.pop("transformer.h.1.mlp.c_fc.bias")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks `transformer.h.1.mlp.c_fc.bias`"):
        import_folder(tmp_path)
    save_file(
        {**weights, "transformer.h.1.mlp.c_fc.bias": bias, "transformer.adapter.weight": bias.clone()},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(CheckpointError, match=r"has `transformer.adapter.weight`"):
        import_folder(tmp_path)


def test_an_untied_model_saved_without_its_head_lacks_it(tmp_path: Path) -> None:
    gpt2(tie_word_embeddings=False).transformer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"lacks `lm_head.weight`"):
        import_folder(tmp_path)


def test_a_matrix_that_lies_the_wrong_way_round_does_not_fit(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    weights["transformer.h.0.mlp.c_fc.weight"] = weights["transformer.h.0.mlp.c_fc.weight"].T.contiguous()
    save_file(weights, tmp_path / "model.safetensors")
    config, ours = import_folder(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"`decoder.blocks.0.mlp.up.weight` has the shape \(21, 13\), not \(13, 21\)"
    ):
        load_weights(GPT(config), ours, "model.safetensors")


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neo"}')
    with pytest.raises(CheckpointError, match="`gpt_neo`, not `gpt2`"):
        import_folder(tmp_path)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"embd_pdrop": 0.3}, "`embd_pdrop` is 0.3, but `resid_pdrop` is 0.1"),
        ({"activation_function": "mish"}, "mish"),
        ({"n_embd": None}, "lacks `n_embd`"),
    ],
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**gpt2().config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"residual": "post", "final_norm": True}, "residual"),
        ({"final_norm": False}, "final_norm"),
        ({"first_norm": True}, "first_norm"),
        ({"norm": "rms"}, "norm"),
        ({"head_bias": True}, "head_bias"),
        ({"scale_embedding": True}, "scale_embedding"),
        ({"prompt": "full"}, "prompt"),
        ({"positions": {"kind": "learned", "offset": 2}}, "positions"),
        ({"positions": {"kind": "rotary"}}, "positions"),
        ({"activation": "swiglu"}, "swiglu"),
        ({"n_kv_heads": 1}, "n_kv_heads"),
        ({"d_head": 5}, "d_head"),
        ({"attention_scale": 1.0}, "attention_scale"),
    ],
)
def test_configurations_gpt2_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=f"GPT-2 does not support .*{named}"):
        export_config(GPTConfig().changed(**fields))
