"""Against peft itself, on a Marian of transformers: the base through our converter, the adapter through our reader."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as TheirConfig
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel
from transformers.pytorch_utils import Conv1D

from clearformer.checkpoint import load_weights
from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.marian import import_folder, tensor_rows
from clearformer.interop.huggingface.peft import export_adapter, import_adapter
from clearformer.interop.names import Rows
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.feedforward import GatedFeedForward
from clearformer.models.transformer import Transformer
from clearformer.tuning.adapters import add_lora, lora_weights, merge, pairs_of, switch
from clearformer.tuning.lora import LoraConfig

from ...bounds import assert_alike

B, T, S, H, K, F, V, R = 2, 3, 5, 7, 2, 13, 17, 3


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with a small Marian in it, every parameter random."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=V, d_model=H * K, encoder_layers=2, decoder_layers=1, encoder_ffn_dim=F, decoder_ffn_dim=F,
        encoder_attention_heads=H, decoder_attention_heads=H, max_position_embeddings=19, pad_token_id=V - 1,
        decoder_start_token_id=V - 1, eos_token_id=0,
    )  # fmt: skip
    model = MarianMTModel(config)
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    model.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def theirs(base: Path, dtype: torch.dtype = torch.float32, **fields: Any) -> Any:
    """peft's model over the base, with B random too, so that the adapter does something."""
    model = MarianMTModel.from_pretrained(base).to(dtype)
    config = TheirConfig(**{"r": R, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj"], **fields})
    adapted = get_peft_model(model, config).to(dtype).eval()
    randomise(adapted, "lora_B")
    return adapted


def ours(base: Path, dtype: torch.dtype = torch.float32) -> tuple[Transformer, Rows]:
    config, weights = import_folder(base)
    model = Transformer(config).to(dtype).eval()
    load_weights(model, weights, str(base))
    return model, tensor_rows(config)


def randomise(model: nn.Module, which: str) -> None:
    for name, parameter in model.named_parameters():
        if which in name:
            nn.init.normal_(parameter)


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def logits(model: Any) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(V, (B, n), generator=generator) for n in (S, T))
    mask = torch.tensor([[True] * S, [True] * 3 + [False] * 2])
    with torch.no_grad():
        if isinstance(model, Transformer):
            return model(Batch(source, mask, target, target))
        found: Tensor = model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits
        return found


def assert_same_logits(ours: Any, theirs: Any) -> None:
    assert_alike(ours, lambda model: [logits(model)], [logits(theirs)], n_terms=H * K)


TARGETS = [["q_proj", "v_proj"], ["k_proj", "out_proj", "fc1", "fc2"], ["encoder_attn.q_proj", "layers.1.fc1"]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("targets", TARGETS, ids=["query-value", "others", "some"])
def test_logits_are_pefts_both_ways(base: Path, tmp_path: Path, dtype: torch.dtype, targets: list[str]) -> None:
    reference = theirs(base, dtype, target_modules=targets)
    model, rows = ours(base, dtype)
    plain = logits(model)
    config = import_adapter(save(reference, tmp_path / "theirs"), model, rows, "fr")
    assert (config.rank, config.alpha, config.dropout) == (R, 5, 0)
    assert_same_logits(model, reference)
    assert (logits(model) - plain).abs().max() > 0.01
    export_adapter(tmp_path / "ours", model, rows, "fr")
    back = PeftModel.from_pretrained(MarianMTModel.from_pretrained(base).to(dtype), tmp_path / "ours").to(dtype).eval()
    assert_same_logits(model, back)
    assert_same_logits(merge(copy.deepcopy(model)), reference)
    wanted, said = (load_file(tmp_path / side / "adapter_model.safetensors") for side in ("theirs", "ours"))
    assert set(wanted) == set(said)
    assert all(said[key].equal(tensor) for key, tensor in wanted.items())


def test_the_configuration_is_said_as_peft_says_it(base: Path, tmp_path: Path) -> None:
    model, rows = ours(base)
    import_adapter(save(theirs(base, lora_dropout=0.25), tmp_path / "theirs"), model, rows)
    export_adapter(tmp_path / "ours", model, rows, base="opus")
    said, wanted = (json.loads((tmp_path / side / "adapter_config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("base_model_name_or_path") == "opus"
    assert said.pop("target_modules") == sorted(wanted["target_modules"]) == ["q_proj", "v_proj"]
    assert {key: wanted[key] for key in said} == said
    assert said["lora_dropout"] == 0.25


def test_a_scale_by_the_root_of_the_rank(base: Path, tmp_path: Path) -> None:
    reference = theirs(base, use_rslora=True)
    model, rows = ours(base)
    import_adapter(save(reference, tmp_path / "theirs"), model, rows)
    assert_same_logits(model, reference)


def test_a_regular_expression_and_chosen_layers(base: Path, tmp_path: Path) -> None:
    for i, fields in enumerate(
        ({"target_modules": r".*decoder.*\.k_proj"}, {"target_modules": ["k_proj"], "layers_to_transform": [1]})
    ):
        reference = theirs(base, **fields)
        model, rows = ours(base)
        import_adapter(save(reference, tmp_path / str(i)), model, rows)
        assert_same_logits(model, reference)


def test_two_adapters_side_by_side(base: Path, tmp_path: Path) -> None:
    model, rows = ours(base)
    plain, references = logits(model), {}
    for name in ("fr", "de"):
        references[name] = theirs(base)
        import_adapter(save(references[name], tmp_path / name), model, rows, name)
    for name, reference in references.items():
        assert_same_logits(switch(model, name), reference)
    assert logits(switch(model, None)).equal(plain)


def test_a_pair_on_all_of_qkv_becomes_three_of_theirs(base: Path, tmp_path: Path) -> None:
    model, rows = ours(base)
    add_lora(model, LoraConfig(rank=R, alpha=7, targets=("attn.qkv", "cross.v")))
    randomise(model, ".B")
    export_adapter(tmp_path / "ours", model, rows)
    back = PeftModel.from_pretrained(MarianMTModel.from_pretrained(base), tmp_path / "ours").eval()
    assert_same_logits(model, back)


class Theirs(nn.Module):
    """Attention and feed-forward cut as Llama cuts them, or as GPT-2 does: fewer key heads, a gate, a fused c_attn."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(11, n, bias=False) for n in (12, 4, 4))
        self.gate_proj, self.up_proj = (nn.Linear(11, 13, bias=False) for _ in range(2))
        self.c_attn = Conv1D(20, 11)  # (in, out), and peft's pair is (R, in), (out, R) all the same

    def forward(self, x: Tensor) -> Tensor:
        layers = (self.q_proj, self.k_proj, self.v_proj, self.gate_proj, self.up_proj, self.c_attn)
        return torch.cat([layer(x) for layer in layers], dim=-1)


class Ours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.fused = (
            MultiHeadAttention(11, n_heads=6, n_kv_heads=2, d_head=2, bias=False) for _ in range(2)
        )
        self.mlp = GatedFeedForward(11, 13)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.attn.qkv(x), self.mlp.up(x), self.fused.qkv(x)], dim=-1)


ROWS: Rows = {
    "attn.qkv.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "mlp.up.weight": ("gate_proj.weight", "up_proj.weight"),
    "fused.qkv.weight": ("c_attn.weight",),
}


def toys() -> tuple[Ours, Theirs]:
    torch.manual_seed(0)
    a, b = Ours().double(), Theirs().double()
    theirs = {**b.state_dict(), "c_attn.weight": b.c_attn.weight.T}
    weights = {own: torch.cat([theirs[name] for name in names]) for own, names in ROWS.items()}
    a.load_state_dict(weights, strict=False)
    return a, b


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")  # peft finds out by itself, and says so
def test_parts_of_unequal_size_gates_and_fused_layers_are_read(tmp_path: Path) -> None:
    a, b = toys()
    reference = get_peft_model(b, TheirConfig(r=R, target_modules=["k_proj", "v_proj", "up_proj", "c_attn"])).double()
    randomise(reference, "lora_B")
    import_adapter(save(reference, tmp_path), a, ROWS)
    assert set(pairs_of(a, "default")) == {"attn.k", "attn.v", "mlp.value", "fused.qkv"}
    x = torch.randn(B, T, 11).double()
    torch.testing.assert_close(a(x), reference(x))


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")  # peft finds out by itself, and says so
def test_parts_of_what_is_one_module_there_are_written_as_one_pair(tmp_path: Path) -> None:
    a, b = toys()
    add_lora(a, LoraConfig(rank=R, alpha=7, targets=("q", "v", "mlp.gate")))
    randomise(a, ".B")
    export_adapter(tmp_path, a, ROWS)
    back = PeftModel.from_pretrained(b, tmp_path).double()
    assert back.peft_config["default"].r == 2 * R  # q and v of c_attn; all others are filled with zeros
    x = torch.randn(B, T, 11).double()
    torch.testing.assert_close(a(x), back(x))


def test_adapters_of_another_base_are_refused_by_name(base: Path, tmp_path: Path) -> None:
    model, rows = ours(base)
    before = list(model.state_dict())
    folder, path = save(theirs(base), tmp_path / "theirs"), tmp_path / "theirs" / "adapter_model.safetensors"
    whole = load_file(path)

    def refuse(tensors: dict[str, Tensor], match: str) -> None:
        save_file(tensors, path)
        with pytest.raises(CheckpointError, match=match):
            import_adapter(folder, model, rows)
        assert list(model.state_dict()) == before

    first = "base_model.model.model.encoder.layers.0.self_attn.q_proj.lora_A.weight"
    refuse({key: x for key, x in whole.items() if key != first}, f"lacks `{first}`")
    refuse({key: x for key, x in whole.items() if "layers.0.self_attn.q_proj" not in key}, r"lacks `.*q_proj.lora_A")
    refuse({**whole, first: torch.zeros(R, 5)}, r"q_proj.lora_A.weight` has the shape \(3, 5\), not \(3, 14\)")
    refuse({**whole, first: torch.zeros(R + 1, H * K)}, r"has the shape \(4, 14\), not \(3, 14\)")
    refuse(
        {key.replace("encoder.layers.1", "encoder.layers.9"): x for key, x in whole.items()}, r"adapts `model.enc.*9"
    )
    refuse({**whole, "base_model.model.lm_head.weight": torch.zeros(V, 2)}, "adapts `base_model.model.lm_head.weight`")
    refuse({**whole, first.replace("lora_A", "lora_magnitude_vector"): torch.zeros(2)}, "has `.*magnitude")
    path.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        import_adapter(folder, model, rows)
    (folder / "adapter_model.bin").touch()
    with pytest.raises(CheckpointError, match="can run code when opened"):
        import_adapter(folder, model, rows)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"peft_type": "IA3"}, "IA3"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"q_proj": 5}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"a_setting_of_tomorrow": {"x": 1}}, "a_setting_of_tomorrow"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"r": None}, "`r`"),
    ],
)
def test_what_is_not_plain_lora_is_refused(base: Path, tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    folder = save(theirs(base), tmp_path / "theirs")
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    with pytest.raises(CheckpointError, match=named):
        import_adapter(folder, *ours(base))


def test_a_layer_that_the_base_does_not_have_is_not_written(base: Path, tmp_path: Path) -> None:
    model, rows = ours(base)
    add_lora(model, LoraConfig(targets=("unembedding",)))  # tied to the embedding: no row of its own
    with pytest.raises(CheckpointError, match="unembedding"):
        export_adapter(tmp_path, model, rows)
    assert not list(tmp_path.glob("adapter*"))


def test_an_adapter_comes_back_as_it_went(base: Path, tmp_path: Path) -> None:
    model, rows = ours(base)
    add_lora(model, LoraConfig(rank=R, alpha=5.5, dropout=0.125, targets=("cross.k", "mlp.up")), "de")
    randomise(model, ".B")
    export_adapter(tmp_path / "ours", model, rows, "de")
    other, _ = ours(base)
    config = import_adapter(tmp_path / "ours", other, rows, "fr")
    assert (config.rank, config.alpha, config.dropout) == (R, 5.5, 0.125)
    for key, tensor in lora_weights(model, "de").items():
        assert lora_weights(other, "fr")[key].equal(tensor)
