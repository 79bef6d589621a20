"""finetune --exportable: classifiers and taggers on published encoders, with and without a pooler, in transformers."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import clearformer
from clearformer import fit
from clearformer.checkpoint import load_tensors, weights_of
from clearformer.errors import CheckpointError, ConfigError
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.recipe import Recipe
from clearformer.text import TextConfig, train_tokenizer
from clearformer.verbs.export import export_model
from clearformer.verbs.import_ import import_model
from clearformer.verbs.load import load

SENTENCES = [
    f"the {a} {v} a {b}" for a, v, b in product(("dog", "cat", "man"), ("sees", "likes"), ("tree", "book"))
] * 2
TEXTS = ["the dog sees a tree", "a book"]
SIZES = {"n_layers": 2, "d_model": 28, "d_ff": 46, "n_heads": 2, "max_length": 61}
BASES: dict[str, dict[str, Any]] = {  # a RoBERTa has no pooler; its first position is 1, after a padding id of 0
    "bert": {},
    "roberta": {"n_segments": 1, "positions": {"kind": "learned", "offset": 1}, "pooler": False}
    | {"next_sentence_head": False},
    "megatron-bert": {"residual": "pre", "first_norm": False, "pooler": False, "next_sentence_head": False},
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.utils.logging.disable_progress_bar()
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., Path]:
    """Fine-tune an encoder with random weights for three steps."""

    def make(name: str, by_word: bool = False, **options: Any) -> Path:
        tokenizer = train_tokenizer(SENTENCES, TextConfig(kind="wordpiece", vocab_size=99, strict=False))
        config = parse_model({"kind": "bert", "vocab": tokenizer.vocab_size, **SIZES, **BASES[name]}, "[model]")
        torch.manual_seed(0)
        network = build_model(config)
        write_run(tmp_path / "base", foreign_recipe(config, Origin(source="x")), weights_of(network), [tokenizer])
        path = tmp_path / ("tags.conll" if by_word else "labels.tsv")
        rows = ["\n".join(f"{word} {'ARTICLE' if len(word) < 4 else 'O'}" for word in s.split()) for s in SENTENCES]
        lines = "".join(f"{s}\t{'tree' if 'tree' in s else 'none'}\n" for s in SENTENCES)
        path.write_text("\n\n".join(rows) + "\n" if by_word else lines)
        options = {"exportable": True, "steps": 3, "device": "cpu", **options}
        clearformer.finetune(tmp_path / "base", labels=path, out=tmp_path / "run", **options)
        return tmp_path / "run"

    return make


@pytest.mark.parametrize("method", ["full", "lora", "head"])
@pytest.mark.parametrize("name", BASES)
def test_a_classifier_goes_over(tuned: Callable[..., Path], tmp_path: Path, name: str, method: str) -> None:
    run, hub = tuned(name, method=method), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == name
    ours, tok = load(run), transformers.AutoTokenizer.from_pretrained(hub)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(hub).eval()
    with torch.no_grad():
        logits = theirs(**tok(TEXTS, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(logits, ours.logits(TEXTS), rtol=0, atol=1e-4)
    assert list(theirs.config.id2label.values()) == ours.classes == ["none", "tree"]
    import_model(hub, tmp_path / "again")
    torch.testing.assert_close(load(tmp_path / "again").logits(TEXTS), logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", BASES)
def test_a_tagger_goes_over(tuned: Callable[..., Path], tmp_path: Path, name: str) -> None:
    run, hub = tuned(name, by_word=True), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == name
    tok = transformers.AutoTokenizer.from_pretrained(hub)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(hub).eval()
    batch = tok(TEXTS[:1], return_tensors="pt")
    words = batch.word_ids(0)
    with torch.no_grad():
        logits = theirs(**batch).logits[0, [words.index(i) for i in range(5)]]
    torch.testing.assert_close(logits, load(run).logits(TEXTS[:1]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", ["lora", "head"])
def test_a_pooler_that_the_base_lacks_is_trained_and_saved(tuned: Callable[..., Path], method: str) -> None:
    run = tuned("roberta", method=method)
    recipe = Recipe.read(run / "recipe.toml")
    assert recipe.tuning is not None
    assert recipe.tuning.new == ("base.pooler",)
    weights, _ = load_tensors(run / "model.safetensors")
    assert {"base.pooler.weight", "base.pooler.bias", "classifier.weight"} <= weights.keys()
    assert load(run).logits(TEXTS).equal(load(run).logits(TEXTS))


def test_a_pooler_of_the_base_stays_frozen(tuned: Callable[..., Path]) -> None:
    weights, _ = load_tensors(tuned("bert", method="head") / "model.safetensors")
    assert weights.keys() == {"classifier.weight", "classifier.bias"}


def test_classes_of_a_trained_run_keep_their_names(tuned: Callable[..., Path]) -> None:
    """Also on an imported base: the weights record the classes."""
    with pytest.raises(CheckpointError, match="its class names come from its training data"):
        import_model(tuned("bert"), classes=["a", "b"])


def test_a_prefix_is_refused_before_training(tuned: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="transformers has no model with a prefix"):
        tuned("bert", method="prefix")
    assert not (tmp_path / "run").exists()
    run = tuned("bert", method="prefix", exportable=False)
    with pytest.raises(CheckpointError, match=r"was trained by prefix tuning(.|\n)*--format onnx"):
        export_model(run, tmp_path / "hub")


@pytest.mark.slow
def test_a_prefix_goes_over_to_onnx(tuned: Callable[..., Path], tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    run = tuned("bert", method="prefix", exportable=False)
    export_model(run, tmp_path / "onnx", "onnx")
    session = ort.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    ours = load(run)
    (row,), (segments,) = ours.tokenizer.encode_with_specials(TEXTS[:1])
    feeds = {"tokens": [row], "mask": [[True] * len(row)], "segments": [segments]}
    (logits,) = session.run(None, {name: np.array(values) for name, values in feeds.items()})
    torch.testing.assert_close(torch.from_numpy(logits), ours.logits(TEXTS[:1]), rtol=0, atol=1e-4)
