"""Models of ours in transformers, with their tokenizers: the same ids, the same logits, the same text."""

from collections.abc import Callable
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from clearformer.checkpoint import weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError, ConfigError
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.open import open_model
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, train_tokenizer
from clearformer.verbs.export import export_model
from clearformer.verbs.load import load

from ..bounds import assert_alike

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
    "pegasus": ("bpe", {"kind": "transformer", "share": "all", **PAIR}),
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
        config = parse_model({**table, **dict.fromkeys(sides, tokenizer.vocab_size), **changes}, "[model]")
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
        ids = tok(text, return_tensors="pt")
        assert ids["input_ids"][0].tolist() == ours.tokenizer.encode([text])[0]
        said = theirs.generate(**ids, max_new_tokens=13, do_sample=False)[0, ids["input_ids"].size(1) :]
        assert told[0].tokens == up_to(said, ours.tokenizer.eos_id)
        back = tok.decode(ids["input_ids"][0], skip_special_tokens=True)
        assert back == ours.tokenizer.decode(ids["input_ids"].tolist())[0]


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("marian", {}),
        ("marian", {"positions": {"kind": "sinusoidal", "layout": "interleaved"}, "head_bias": True}),
        ("pegasus", {}),
        ("pegasus", {"positions": {"kind": "sinusoidal", "layout": "halves"}, "head_bias": True}),
        ("t5", {}),
        ("t5", {"attention_dropout": 0.1}),
    ],
)
@torch.no_grad()
def test_a_translator_goes_over(
    own: Callable[..., Path], tmp_path: Path, model_type: str, changes: dict[str, Any]
) -> None:
    """AutoTokenizer ends a source with EOS, and what is written begins as it does here."""
    run, hub = own(model_type, **changes), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == model_type
    theirs, tok, ours = AutoModelForSeq2SeqLM.from_pretrained(hub), AutoTokenizer.from_pretrained(hub), load(run)
    for text in TEXTS:
        ids = tok(text, return_tensors="pt")
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
        ids, segments = ours.tokenizers[0].encode_with_specials([text], [second])
        found = tok(text, second, return_tensors="pt")
        assert found["input_ids"].tolist() == ids
        said = theirs(found["input_ids"], token_type_ids=torch.tensor(segments)).logits
        batch = EncoderBatch(found["input_ids"], None, torch.tensor(segments))
        assert_alike(ours.network.eval(), lambda network, batch=batch: [network(batch)], [said], n_terms=46)  # type: ignore[misc]


def up_to(ids: torch.Tensor, eos: int) -> list[int]:
    return list(takewhile(lambda token: token != eos, ids.tolist()))


def test_a_model_that_nobody_else_has_is_refused(own: Callable[..., Path], tmp_path: Path) -> None:
    run = own("gpt2", positions={"kind": "alibi"})
    with pytest.raises(CheckpointError, match=r"does not support positions = .*alibi.*\nhint: only models with"):
        export_model(run, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
    with pytest.raises(ConfigError, match="there is no export format `tflite`"):
        export_model(run, tmp_path / "hub", "tflite")
    run = own("pegasus", positions={"kind": "rotary"})
    with pytest.raises(CheckpointError, match="Pegasus does not support positions"):
        export_model(run, tmp_path / "hub")
