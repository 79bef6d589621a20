import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from clearformer.checkpoint import weights_of
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface import gpt2, marian
from clearformer.interop.huggingface.convert import CONVERTERS, import_any, read_model_config
from clearformer.interop.huggingface.folder import is_copy, read_shapes, read_weights
from clearformer.interop.huggingface.peft import export_adapter
from clearformer.interop.huggingface.pickled import read_any_weights
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.tuning.adapters import add_lora
from clearformer.tuning.lora import LoraConfig


def test_the_converter_is_that_of_the_model_type(tmp_path: Path) -> None:
    lm = GPT(GPTConfig(vocab=5, n_layers=1, d_model=6, d_ff=7, n_heads=3, max_length=11))
    gpt2.export_folder(tmp_path / "lm", lm.config, weights_of(lm))
    assert import_any(tmp_path / "lm")[0].kind == "gpt"
    config = TransformerConfig(
        source_vocab=5, target_vocab=5, n_encoder_layers=1, n_decoder_layers=1, d_model=6, d_ff=7, n_heads=3,
        residual="post", positions={"layout": "halves"},
    )  # fmt: skip
    translator = Transformer(config)
    marian.export_folder(tmp_path / "mt", translator.config, weights_of(translator), pad=0, eos=1, first=0)
    assert import_any(tmp_path / "mt")[0].kind == "transformer"


@pytest.mark.parametrize("name", CONVERTERS)
def test_each_converter_reads_what_it_is_listed_for(tmp_path: Path, name: str) -> None:
    """Its own model type, as far as the first setting that is not there."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    with pytest.raises(CheckpointError, match=r"lacks `(vocab_size|image_size|embedding_size)`"):
        import_any(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"model_type": "mamba"}', r"(?s)unsupported model_type `mamba`.*gpt2, llama, marian"),
        ("{}", "unsupported model_type `None`"),
        ('{"model_type": ["gpt2"]}', "unsupported model_type"),
        ("[]", "is not a JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_unknown_types_are_answered_with_those_known(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=reason):
        import_any(tmp_path)


V, D, F, L = 17, 14, 11, 2
BERT = {
    "vocab_size": V, "hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": F,
    "max_position_embeddings": 37,
}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": D, "n_layer": L, "n_head": 2, "n_positions": 37}
LLAMA = {
    "vocab_size": V, "hidden_size": 28, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": 2,
    "max_position_embeddings": 37,
}  # fmt: skip
MARIAN = {
    "vocab_size": V, "d_model": D, "encoder_layers": L, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": F, "decoder_ffn_dim": F, "max_position_embeddings": 37,
    "pad_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {"vocab_size": V, "d_model": D, "num_layers": L, "num_heads": 3, "d_kv": 5, "d_ff": F}
VIT = {
    "image_size": 15, "patch_size": 5, "hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": F,
}  # fmt: skip
RESNET = {"embedding_size": 5, "hidden_sizes": [5, 7], "depths": [1, 2], "layer_type": "basic"}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # class, its sizes, and what ours is to have
    "bert": ("BertModel", BERT, {"word_head": False, "pooler": True, "next_sentence_head": False}),
    "bert words": ("BertForMaskedLM", BERT, {"word_head": True, "pooler": False, "next_sentence_head": False}),
    "bert pairs": ("BertForNextSentencePrediction", BERT, {"word_head": False, "next_sentence_head": True}),
    "bert all": ("BertForPreTraining", BERT, {"word_head": True, "pooler": True, "next_sentence_head": True}),
    "roberta": ("RobertaModel", BERT, {"word_head": False, "pooler": True, "max_length": 35}),
    "roberta words": ("RobertaForMaskedLM", BERT, {"word_head": True, "pooler": False}),
    "megatron-bert": ("MegatronBertModel", BERT, {"residual": "pre", "word_head": False, "pooler": True}),
    "megatron-bert words": ("MegatronBertForMaskedLM", BERT, {"residual": "pre", "word_head": True, "pooler": False}),
    "gpt2": ("GPT2LMHeadModel", GPT2, {"tied": True}),
    "gpt2 headless": ("GPT2Model", GPT2, {"tied": True}),
    "gpt2 untied": ("GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False}, {"tied": False}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", GPT2, {"residual": "post"}),
    "llama": ("LlamaForCausalLM", LLAMA, {"tied": False}),
    "llama tied": ("LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True}, {"tied": True}),
    "marian": ("MarianMTModel", MARIAN, {"share": "all"}),
    "pegasus": ("PegasusForConditionalGeneration", MARIAN, {"residual": "pre", "share": "all"}),
    "t5": ("T5ForConditionalGeneration", T5, {"share": "all"}),
    "vit": ("ViTForImageClassification", {**VIT, "num_labels": 5}, {"n_classes": 5}),
    "vit of two": ("ViTForImageClassification", VIT, {"n_classes": 2}),  # of which config.json says nothing
    "vit headless": ("ViTModel", VIT, {"n_classes": 0}),
    "resnet": ("ResNetForImageClassification", {**RESNET, "num_labels": 3}, {"n_classes": 3, "size": 224}),
    "resnet headless": ("ResNetModel", RESNET, {"n_classes": 0}),
}


def write(name: str, folder: Path, **more: Any) -> Path:
    """A small random model as `save_pretrained` leaves it."""
    kind, sizes, _ = MODELS[name]
    network = getattr(transformers, kind)
    torch.manual_seed(3)
    transformers.utils.logging.disable_progress_bar()
    network(network.config_class(**sizes)).save_pretrained(folder, **more)
    return folder


def test_every_converter_has_its_models_here() -> None:
    assert {name.split()[0] for name in MODELS} == CONVERTERS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_headers_give_the_configuration_of_the_whole_import(
    tmp_path: Path, headers_only: Callable[[], None], name: str
) -> None:
    config, _ = import_any(write(name, tmp_path))
    headers_only()
    assert read_model_config(tmp_path) == config
    expected = MODELS[name][2]
    assert {key: getattr(config, key) for key in expected} == expected


@pytest.mark.parametrize("kind", ["marian", "t5", "gpt2", "llama", "bert"])
def test_headers_give_the_configuration_of_every_hub_folder(
    hub: Callable[..., Path], headers_only: Callable[[], None], kind: str
) -> None:
    config, _ = import_any(folder := hub(kind))
    headers_only()
    assert read_model_config(folder) == config


def test_the_size_of_pictures_is_said_beside_the_weights(tmp_path: Path, headers_only: Callable[[], None]) -> None:
    write("resnet", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 41, "width": 41}}))
    config, _ = import_any(tmp_path)
    headers_only()
    assert read_model_config(tmp_path) == config
    assert config.size == 41


def test_headers_of_several_files(tmp_path: Path, headers_only: Callable[[], None]) -> None:
    config, _ = import_any(write("bert all", tmp_path, max_shard_size="2KB"))
    shapes = {name: tuple(tensor.shape) for name, tensor in read_weights(tmp_path).items()}
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    headers_only()
    assert read_model_config(tmp_path) == config
    assert read_shapes(tmp_path) == shapes
    path = max(tmp_path.glob("model-*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is truncated"):
        read_model_config(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        read_model_config(tmp_path)


@pytest.mark.parametrize("n_rows", [3, 2500])
@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("table", ["shared.weight", "encoder.embed_tokens.weight", None])
def test_a_t5_that_repeats_its_table_has_one(tmp_path: Path, n_rows: int, is_own: bool, table: str | None) -> None:
    """A head that differs in its last number alone is one of its own; one without any other table is that table."""
    write("t5", tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**said, "vocab_size": n_rows}))
    weights = read_weights(tmp_path)
    del weights["shared.weight"]
    head = torch.randn(n_rows, D)
    weights["lm_head.weight"] = head.clone()
    if table is not None:
        weights[table] = head.clone()
        head.view(-1)[-1] += is_own
        weights["lm_head.weight"] = head
    save_file(weights, tmp_path / "model.safetensors")
    share = "embeddings" if is_own and table is not None else "all"
    assert read_model_config(tmp_path).share == import_any(tmp_path)[0].share == share


def test_tables_of_other_shapes_are_no_copies(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(5, 3)}, tmp_path / "model.safetensors")
    assert not is_copy(tmp_path, "a", "b")


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "vit"])
def test_a_pickle_is_left_to_import(tmp_path: Path, name: str) -> None:
    """Which decides by its tensors as by a header."""
    config, _ = import_any(write(name, tmp_path))
    weights = read_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not exist"):
        read_model_config(tmp_path)
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"a pickle, which can run code when opened\nhint: .*clearformer import"):
        read_model_config(tmp_path)
    assert import_any(tmp_path, read_any_weights)[0] == config


def test_exported_files_have_the_mode_that_the_umask_gives(
    tmp_path: Path, mode: int, modes: Callable[[Path], set[int]]
) -> None:
    model = GPT(GPTConfig(vocab=5, n_layers=1, d_model=6, d_ff=7, n_heads=3, max_length=11))
    gpt2.export_folder(tmp_path, model.config, weights_of(model))
    add_lora(model, LoraConfig(rank=2))
    export_adapter(tmp_path / "adapter", model, gpt2.tensor_rows(model.config))
    assert len(list(tmp_path.rglob("*.*"))) == 4
    assert modes(tmp_path) == {mode}
