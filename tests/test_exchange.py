"""Models that go over to transformers and come from there, with their tokenizers."""

from collections.abc import Callable
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

import clearformer
from clearformer.checkpoint import weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError, ConfigError
from clearformer.exchange import export_model, import_model, merge, write_run
from clearformer.interop.origin import Origin
from clearformer.loading.contents import foreign_recipe
from clearformer.loading.handles import load
from clearformer.loading.opening import open_model
from clearformer.recipe import build_model, choose
from clearformer.text import TextConfig, train_tokenizer

from .bounds import assert_alike

LINES = ["The dog sees a tree, it's 12 metres high.", "A man likes the river; a cat hears the book?", "Der Hund."] * 5
TEXTS = ["The cat sees 31 dogs.", "a river", "It's the man's tree, isn't it?"]
STACK: dict[str, Any] = {"d_model": 28, "d_ff": 46, "n_heads": 2, "max_length": 61}
PAIR = {"n_encoder_layers": 2, "n_decoder_layers": 1, **STACK}
LLAMA = {"norm": "rms", "activation": "swiglu", "positions": {"kind": "rotary"}, "bias": False, "n_kv_heads": 1}
MARIAN = {"residual": "post", "final_norm": False, "positions": {"kind": "sinusoidal", "layout": "halves"}}
OWN: dict[str, tuple[str, dict[str, Any]]] = {  # model_type -> a tokenizer and a model of ours that go over as such
    "gpt2": ("byte-bpe", {"kind": "gpt", "n_layers": 2, **STACK}),
    "openai-gpt": ("bpe", {"kind": "gpt", "n_layers": 2, "residual": "post", **STACK, "d_ff": 112}),
    "llama": ("byte-bpe", {"kind": "gpt", "n_layers": 2, **STACK, **LLAMA}),
    "marian": ("bpe", {"kind": "transformer", "share": "all", **PAIR, **MARIAN}),
    "t5": ("unigram", {"kind": "t5", "share": "all", "d_head": 13, **PAIR}),
    "bert": ("wordpiece", {"kind": "bert", "n_layers": 2, **STACK}),
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Path]:
    """A run folder of ours, with random weights, biases and gains too, and a tokenizer trained on a few lines."""

    def make(model_type: str, **changes: Any) -> Path:
        kind, table = OWN[model_type]
        tokenizer = train_tokenizer(LINES, TextConfig(kind=kind, vocab_size=301, strict=False, min_frequency=1))
        sides = ("source_vocab", "target_vocab") if "n_encoder_layers" in table else ("vocab",)
        config = choose("model", {**table, **dict.fromkeys(sides, tokenizer.vocab_size), **changes}, "gpt", "[model]")
        torch.manual_seed(0)
        network = build_model(config)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        recipe = foreign_recipe(config, Origin(source="nowhere"))
        write_run(tmp_path / "run", recipe, weights_of(network), [tokenizer] * len(sides), None)
        return tmp_path / "run"

    return make


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("gpt2", {}),
        ("gpt2", {"bias": False, "tied": False}),
        ("openai-gpt", {}),
        ("llama", {}),
        ("llama", {"d_head": 6}),
    ],
)
@torch.no_grad()
def test_a_language_model_goes_over(
    own: Callable[..., Path], tmp_path: Path, model_type: str, changes: dict[str, Any]
) -> None:
    run, hub = own(model_type, **changes), tmp_path / "hub"
    assert export_model(run, hub) == {"folder": str(hub), "model_type": model_type}
    theirs, tok, ours = AutoModelForCausalLM.from_pretrained(hub), AutoTokenizer.from_pretrained(hub), load(run)
    for text, told in zip(TEXTS, ours.generate(TEXTS, temperature=0, max_new=13)):
        ids = tok(text, return_tensors="pt", return_token_type_ids=False)
        assert ids["input_ids"][0].tolist() == ours.tokenizer.encode([text])[0]
        said = theirs.generate(**ids, max_new_tokens=13, do_sample=False)[0, ids["input_ids"].size(1) :]
        assert told[0].tokens == up_to(said, ours.tokenizer.eos_id)
        back = tok.decode(ids["input_ids"][0], skip_special_tokens=True)
        assert back == ours.tokenizer.decode(ids["input_ids"].tolist())[0]


@pytest.mark.parametrize("model_type", ["marian", "t5"])
@torch.no_grad()
def test_a_translator_goes_over(own: Callable[..., Path], tmp_path: Path, model_type: str) -> None:
    """AutoTokenizer ends a source with EOS, and what is written begins as it does here."""
    run, hub = own(model_type), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == model_type
    theirs, tok, ours = AutoModelForSeq2SeqLM.from_pretrained(hub), AutoTokenizer.from_pretrained(hub), load(run)
    for text in TEXTS:
        ids = tok(text, return_tensors="pt", return_token_type_ids=False)
        assert ids["input_ids"][0].tolist() == [*ours.source_tokenizer.encode([text])[0], ours.source_tokenizer.eos_id]
        for beam in (1, 3):
            said = theirs.generate(**ids, max_length=23, num_beams=beam, do_sample=False, early_stopping=False)[0]
            found = ours.candidates([text], beam=beam, max_ratio=1e-9, max_extra=22)[0][0]
            assert found.tokens == up_to(said[1:], ours.target_tokenizer.eos_id)
            assert said[0] == ours.start_id


@torch.no_grad()
def test_a_bert_goes_over(own: Callable[..., Path], tmp_path: Path) -> None:
    run, hub = own("bert"), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == "bert"
    theirs, tok, ours = AutoModelForMaskedLM.from_pretrained(hub), AutoTokenizer.from_pretrained(hub), open_model(run)
    for text, second in pairwise(TEXTS):
        ids, segments = ours.tokenizers[0].framed([text], [second])
        found = tok(text, second, return_tensors="pt")
        assert found["input_ids"].tolist() == ids
        said = theirs(found["input_ids"], token_type_ids=torch.tensor(segments)).logits
        batch = EncoderBatch(found["input_ids"], None, torch.tensor(segments))
        assert_alike(ours.network.eval(), lambda network, batch=batch: [network(batch)], [said], n_terms=46)  # type: ignore[misc]


def up_to(ids: torch.Tensor, eos: int) -> list[int]:
    return list(takewhile(lambda token: token != eos, ids.tolist()))


def test_a_model_that_nobody_else_has_is_refused(own: Callable[..., Path], tmp_path: Path) -> None:
    run = own("gpt2", positions={"kind": "alibi"})
    with pytest.raises(CheckpointError, match=r"GPT-2 knows no model with positions = .*alibi.*\nhint: it must be"):
        export_model(run, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
    with pytest.raises(ConfigError, match="there is no format `onnx`"):
        export_model(run, tmp_path / "hub", "onnx")
    with pytest.raises(CheckpointError, match="Marian knows no model with"):
        export_model("en-fr-small", tmp_path / "hub")


@pytest.mark.parametrize("kind", ["marian", "t5", "gpt2", "llama", "bert"])
def test_what_is_imported_and_exported_comes_back(hub: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    """Every tensor bit by bit, and a run folder whose recipe parses like any other."""
    report = import_model(hub(kind, is_opened=kind == "llama"), tmp_path / "run")
    assert report["format"] == "huggingface"
    assert report["parameters"] == clearformer.inspect(tmp_path / "run")["parameters"]
    export_model(tmp_path / "run", tmp_path / "again")
    first, second = open_model(tmp_path / "hub"), open_model(tmp_path / "again")
    assert first.config == second.config
    if kind != "bert":  # which writes nothing
        assert first.opening == second.opening == open_model(tmp_path / "run").opening
    again = second.network.state_dict()
    assert all(again[name].equal(tensor) for name, tensor in first.network.state_dict().items())
    text = "the dog sees a zebra"
    assert first.tokenizers[0].encode([text]) == second.tokenizers[0].encode([text])


def test_a_pickle_comes_in_through_import_alone(hub: Callable[..., Path], tmp_path: Path) -> None:
    path = hub("gpt2")
    model = AutoModelForCausalLM.from_pretrained(path)
    (path / "model.safetensors").unlink()
    torch.save(model.state_dict(), path / "pytorch_model.bin")
    for verb in (load, clearformer.inspect, lambda folder: export_model(folder, tmp_path / "out")):
        with pytest.raises(CheckpointError, match="a pickle, which is not opened here"):
            verb(path)
    import_model(path, tmp_path / "run")
    found = open_model(tmp_path / "run").network.state_dict()["embedding.weight"]
    assert found.equal(model.transformer.wte.weight)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


def test_a_pickle_that_holds_more_than_tensors_is_refused(
    hub: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = hub("gpt2")
    (path / "model.safetensors").unlink()
    torch.save({"transformer.wte.weight": Evil()}, path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin cannot be read"):
        import_model(path, tmp_path / "run")
    assert "must not run" not in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_other_architectures_and_other_tensors_are_named(hub: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = hub("llama")
    file, config = path / "model.safetensors", path / "config.json"
    weights = load_file(file)
    lost = weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, file)
    with pytest.raises(CheckpointError, match=r"lacks `model.layers.1.mlp.up_proj.weight`"):
        import_model(path, tmp_path / "run")
    save_file({**weights, "model.layers.1.mlp.up_proj.weight": lost, "model.layers.7.x": lost.clone()}, file)
    with pytest.raises(CheckpointError, match=r"has `model.layers.7.x`, which the configuration does not"):
        load(path)
    told = config.read_text()
    config.write_text(told.replace('"model_type": "llama"', '"model_type": "gpt2"'))
    with pytest.raises(CheckpointError, match=r"lacks `n_layer`"):
        load(path)
    config.write_text(told.replace('"model_type": "llama"', '"model_type": "mamba"'))
    with pytest.raises(CheckpointError, match=r"(?s)models of type `mamba` are not known.*llama"):
        import_model(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_there_is_left_alone(hub: Callable[..., Path], tmp_path: Path) -> None:
    path = hub("gpt2")
    for make in (import_model, export_model):
        with pytest.raises(CheckpointError, match="is there already, and not empty"):
            make(path, path)
    with pytest.raises(CheckpointError, match="there is no model"):
        import_model(tmp_path / "nothing", tmp_path / "run")
    (tmp_path / "bare").mkdir()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        import_model(tmp_path / "bare", tmp_path / "run")


def adapter(base: Path, folder: Path) -> Any:
    """A LoRA adapter of peft's, with both matrices random, and the adapted model."""
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "up_proj"])).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    adapted.save_pretrained(folder)
    return adapted


@torch.no_grad()
def test_an_adapter_goes_into_the_weights_of_its_base(hub: Callable[..., Path], tmp_path: Path) -> None:
    """Over the Hugging Face folder that it names, and over a run folder made of that."""
    base = hub("llama")
    theirs = adapter(base, tmp_path / "adapter")
    import_model(base, tmp_path / "run")
    merge(tmp_path / "adapter", tmp_path / "merged")
    merge(tmp_path / "adapter", tmp_path / "also", base=tmp_path / "run")
    tokens = torch.tensor([[3, 4, 5, 7]])
    said = theirs.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=9, do_sample=False)
    for folder in ("merged", "also"):
        ours = load(tmp_path / folder)
        assert ours.generate(["the a dog man"], temperature=0, max_new=9)[0][0].tokens == up_to(said[0, 4:], 0)


def test_an_adapter_for_another_base_is_refused(hub: Callable[..., Path], tmp_path: Path) -> None:
    adapter(hub("llama"), tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=r"adapts `model.layers.*, which the model cannot\nhint: .*another base"):
        merge(tmp_path / "adapter", tmp_path / "out", base=hub("gpt2", "other"))
    with pytest.raises(CheckpointError, match=r"does not fit the model: .* is \(3, 28\), not \(3, 12\)"):
        merge(tmp_path / "adapter", tmp_path / "out", base=hub("llama", "less", hidden_size=12))
    (tmp_path / "hub").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"which is not here\nhint: .*--base"):
        merge(tmp_path / "adapter", tmp_path / "out")
    with pytest.raises(CheckpointError, match="holds no adapter"):
        merge(tmp_path / "moved", tmp_path / "out")
    assert not (tmp_path / "out").exists()
