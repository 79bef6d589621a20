import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.checkpoint import load_weights, weights_of
from clearformer.data.batch import TextBatch
from clearformer.errors import CheckpointError, MachineError
from clearformer.interop.gguf import halves, import_config, import_file, import_weights, tensor_rows
from clearformer.interop.names import to_theirs
from clearformer.layers.positions import Rotary, rotate
from clearformer.models.gpt import GPT, GPTConfig

H, G, K, F, V = 6, 2, 10, 13, 17
TOKENS = ["<first>", "<last>", "Ġ", *"abcdefghijkl", "ab", "abc"]


def model(tied: bool) -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab=V, n_layers=2, d_model=H * K, d_ff=F, n_heads=H, n_kv_heads=G, max_length=11, norm="rms",
        norm_eps=2**-17, activation="swiglu", positions={"kind": "rotary", "base": 700.0}, bias=False, dropout=0.0,
        attention_dropout=0.0, tied=tied,
    )  # fmt: skip
    return GPT(config).eval()


def facts(**changes: Any) -> dict[str, Any]:
    """What llama.cpp's converter would write of `model`."""
    return {
        "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": H * K,
        "llama.feed_forward_length": F, "llama.attention.head_count": H, "llama.attention.head_count_kv": G,
        "llama.attention.key_length": K, "llama.context_length": 11, "llama.attention.layer_norm_rms_epsilon": 2**-17,
        "llama.rope.freq_base": 700.0, "llama.rope.dimension_count": K, **changes,
    }  # fmt: skip


def tensors(ours: GPT) -> dict[str, Tensor]:
    """What it would write of the weights: the pairs of queries and keys side by side."""
    rows = tensor_rows(ours.config)
    parts = {name: (H * K, G * K, G * K) for name in rows if name.endswith("qkv.weight")}
    found = to_theirs(weights_of(ours), rows, "the model", parts=parts)
    beside = torch.arange(K).unflatten(0, (2, K // 2)).T.flatten()  # 0 5 1 6 2 7 …
    for name, n in (("attn_q.weight", H), ("attn_k.weight", G)):
        for layer in range(2):
            weight = found[f"blk.{layer}.{name}"]
            found[f"blk.{layer}.{name}"] = torch.cat([head[beside] for head in weight.split(K)])
            assert len(weight) == n * K
    return found


def test_pairs_half_a_head_apart_turn_as_neighbours_did() -> None:
    """By hand, neighbours: (x, y) -> (x cos − y sin, x sin + y cos); what a query and a key say stays the same."""
    torch.manual_seed(0)
    weight, x = torch.randn(2 * K, 7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    rotation = Rotary(K, 700.0).double().rotation(torch.tensor([3]))
    ours = rotate((halves(weight, 2) @ x).view(1, 2, 1, K), rotation)
    pairs = (weight @ x).view(2, K // 2, 2)
    cos, sin = rotation
    left = pairs[..., 0] * cos - pairs[..., 1] * sin
    right = pairs[..., 0] * sin + pairs[..., 1] * cos
    torch.testing.assert_close(ours.view(2, K), torch.cat([left, right], dim=1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("tied", [True, False])
def test_what_the_converter_wrote_comes_back(tied: bool) -> None:
    ours = model(tied)
    written = tensors(ours)
    config = import_config(facts(), written, "model.gguf")
    assert config == ours.config
    weights = import_weights(written, config, "model.gguf")
    assert all(weights[name].equal(tensor) for name, tensor in weights_of(ours).items())


@pytest.mark.parametrize("tied", [True, False])
def test_a_file_is_read(tmp_path: Path, tied: bool) -> None:
    gguf = pytest.importorskip("gguf")
    ours = model(tied)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    for name, value in facts().items():
        if name != "general.architecture":
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            add(name, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, *[1] * (V - 2)])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(tied)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, tensor in tensors(ours).items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config, weights, tokenizer, template = import_file(tmp_path / "model.gguf")
    back = GPT(config).eval()
    load_weights(back, weights, "model.gguf")
    tokens = torch.randint(V, (2, 5))
    assert back(TextBatch(tokens, tokens)).equal(ours(TextBatch(tokens, tokens)))
    assert tokenizer.pieces(tokenizer.encode(["abcd ab"])[0]) == ["abc", "d", "▁", "ab"]
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, 1)
    assert tokenizer.opening == ([0] if tied else [])
    assert template == "{{ messages[0]['content'] }}"


@pytest.mark.timeout(20)
def test_an_array_that_is_longer_than_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("numbers", [7, 11, 13])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    content = path.read_bytes()
    at = content.index(b"numbers") + len(b"numbers") + 8  # after the types of the value and of its elements
    path.write_bytes(content[:at] + (2**60).to_bytes(8, "little") + content[at + 8 :])
    with pytest.raises(CheckpointError, match="a value lies beyond the end of the file"):
        import_file(path)
    path.write_bytes(content)
    monkeypatch.setattr("clearformer.interop.gguf.MAX_VALUES", 10)
    with pytest.raises(CheckpointError, match="it has more than 10 values"):
        import_file(path)


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MachineError, match="pip install gguf"):
        import_file(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": "qwen2"}, "`qwen2`"),
        ({"llama.rope.scaling.type": "yarn"}, "scaling `yarn`"),
        ({"llama.rope.dimension_count": 4}, "cover 4 of 10 features"),
    ],
)
def test_models_we_cannot_express_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config(facts(**changes), tensors(model(True)), "model.gguf")


def test_what_is_missing_misshapen_or_too_much_is_named() -> None:
    ours = model(True)
    written = tensors(ours)
    with pytest.raises(CheckpointError, match=r"lacks `token_embd.weight`"):
        import_config(facts(), {}, "model.gguf")
    less = {name: value for name, value in facts().items() if name != "llama.block_count"}
    with pytest.raises(CheckpointError, match=r"lacks `llama.block_count`"):
        import_config(less, written, "model.gguf")
    with pytest.raises(CheckpointError, match=r"has `rope_freqs.weight`"):
        import_weights({**written, "rope_freqs.weight": torch.ones(5)}, ours.config, "model.gguf")
    with pytest.raises(CheckpointError, match=r"`blk.1.attn_k.weight` has 19 rows, not 20"):
        import_weights({**written, "blk.1.attn_k.weight": torch.ones(19, 60)}, ours.config, "model.gguf")
