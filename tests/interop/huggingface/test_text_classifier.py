"""Text classifiers and taggers of transformers as run folders: the same logits, and the same weights on the way out."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import clearformer
from clearformer.checkpoint import weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.convert import export_any
from clearformer.interop.huggingface.vocabulary import write_tokenizer
from clearformer.loading.open import open_model
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.verbs.export import export_model
from clearformer.verbs.import_ import import_model
from clearformer.verbs.load import load

LINES = ["The dog sees a tree, it's 12 metres high.", "A man likes the river; a cat hears the book?", "Der Hund."] * 5
SIZES = {"vocab_size": 301, "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 37, "max_position_embeddings": 61, "type_vocab_size": 2}
FAMILIES = ["Bert", "MegatronBert", "Roberta"]
Hub = Callable[..., tuple[Path, Any]]


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def tokenizer() -> Tokenizer:
    return train_tokenizer(LINES, TextConfig(kind="wordpiece", vocab_size=301, strict=False, min_frequency=1))


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """Save a classifier of transformers with random weights and a tokenizer; returns its folder and the model."""

    def make(name: str, **settings: Any) -> tuple[Path, Any]:
        kind = getattr(transformers, name)
        sizes = {**SIZES, **({"type_vocab_size": 1, "pad_token_id": 0} if "Roberta" in name else {})}
        torch.manual_seed(0)
        model = kind(kind.config_class(**sizes, **settings)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(tmp_path / "hub")
        facts = SimpleNamespace(kind="bert", n_segments=sizes["type_vocab_size"], max_length=60)
        write_tokenizer(tmp_path / "hub", tokenizer(), facts, False)
        return tmp_path / "hub", model

    return make


@torch.no_grad()
def assert_same_logits(theirs: Any, run: Path) -> None:
    """On padded rows with two segments. At padding, a tagger has no logits."""
    ours = open_model(run)
    torch.manual_seed(1)
    tokens, mask = torch.randint(5, 300, (5, 11)), torch.ones(5, 11, dtype=torch.bool)
    mask[1, 7:], mask[4, 2:] = False, False
    tokens, segments = tokens.where(mask, 0), (torch.arange(11) > 4).long().expand(5, 11)
    is_roberta = theirs.config.model_type == "roberta"
    more = {} if is_roberta else {"token_type_ids": segments}
    expected = theirs(tokens, attention_mask=mask.long(), **more).logits
    logits = ours.network.eval()(EncoderBatch(tokens, mask, segments))
    if logits.dim() == 3:
        expected, logits = expected[mask], logits[mask]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4 * max(1.0, float(expected.abs().max())))


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_classifier_comes_in_and_goes_out_again(hub: Hub, tmp_path: Path, family: str, head: str) -> None:
    folder, theirs = hub(name := f"{family}For{head}", id2label={0: "bad", 1: "good", 2: "so-so"})
    run = tmp_path / "run"
    assert import_model(folder, run)["kind"] == "classifier"
    assert_same_logits(theirs, run)
    assert_same_logits(theirs, folder)
    assert load(run).classes == ["bad", "good", "so-so"]
    assert load(run).kind == ("a tagger" if "Token" in name else "a classifier")
    export_model(run, tmp_path / "again")
    again = getattr(transformers, name).from_pretrained(tmp_path / "again")
    assert again.config.id2label == theirs.config.id2label
    pairs = zip(theirs.state_dict().items(), again.state_dict().items(), strict=True)
    assert all(a == b and x.equal(y) for (a, x), (b, y) in pairs)


@torch.no_grad()
def test_texts_and_pairs_of_texts_have_the_logits_of_transformers(hub: Hub) -> None:
    folder, theirs = hub("BertForSequenceClassification", num_labels=3)
    ours, tok = load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    texts, others = ["the dog sees", "a river"], ["a man", "the old tree"]
    for batch, logits in (
        (tok(texts, padding=True, return_tensors="pt"), ours.logits(texts)),
        (tok(texts, others, padding=True, return_tensors="pt"), ours.logits(texts, others)),
    ):
        torch.testing.assert_close(theirs(**batch).logits, logits, rtol=0, atol=1e-4)


def test_classes_without_names_are_named_later(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, theirs = hub("RobertaForSequenceClassification", num_labels=3)
    import_model(folder, run := tmp_path / "run")
    assert "the classes have no names; to name them: clearformer import" in capsys.readouterr().err
    assert load(run).classes == ["LABEL_0", "LABEL_1", "LABEL_2"]
    with pytest.raises(CheckpointError, match="has 3 classes, but --classes has 2 names"):
        import_model(run, classes=["a", "b"])
    import_model(run, classes=["bad", "good", "so-so"])
    assert load(run).classes == ["bad", "good", "so-so"]
    assert clearformer.classify(run, "the dog")["label"] in ("bad", "good", "so-so")
    assert_same_logits(theirs, run)


def test_a_model_with_one_output_predicts_values(hub: Hub, tmp_path: Path) -> None:
    folder, theirs = hub("BertForSequenceClassification", num_labels=1)
    import_model(folder, run := tmp_path / "run")
    assert_same_logits(theirs, run)
    assert "value" in clearformer.classify(run, "the dog")
    with pytest.raises(CheckpointError, match="is not a classifier, so --classes does not apply"):
        import_model(run, classes=["a"])
    export_model(run, tmp_path / "again")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again")
    assert again.config.problem_type == "regression"
    assert load(tmp_path / "again").classes == []


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_an_unused_pooler_is_dropped(hub: Hub, tmp_path: Path, family: str) -> None:
    """Old files of taggers, and of RoBERTa's classifiers, contain the pooler of the pretrained model."""
    name = f"{family}For{'Token' if family == 'Bert' else 'Sequence'}Classification"
    folder, theirs = hub(name, num_labels=3)
    weights = load_file(file := folder / "model.safetensors")
    prefix = f"{family.lower()}.pooler.dense"
    extra = {f"{prefix}.weight": torch.randn(22, 22), f"{prefix}.bias": torch.randn(22)}
    save_file({**weights, **extra}, file, {"format": "pt"})
    import_model(folder, tmp_path / "run")
    assert_same_logits(theirs, tmp_path / "run")


@torch.no_grad()
def test_an_exported_gpt_classifier_comes_back(tmp_path: Path) -> None:
    """Its bias returns inside the last norm, so the weights differ, and the logits do not."""
    tok = tokenizer()
    sizes = {"vocab": tok.vocab_size, "n_layers": 2, "d_model": 14, "d_ff": 23, "n_heads": 2, "max_length": 37}
    table = {"kind": "classifier", "base": {"kind": "gpt", **sizes}, "pooling": "last", "n_classes": 3}
    config = parse_model(table, "[model]")
    torch.manual_seed(0)
    network = build_model(config).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ids = {"pad": tok.pad_id, "bos": tok.bos_id, "eos": tok.eos_id}
    export_any(tmp_path / "hub", config, weights_of(network), ids, ["a", "b", "c"])
    write_tokenizer(tmp_path / "hub", tok, config, False)
    import_model(tmp_path / "hub", tmp_path / "run")
    tokens, mask = torch.randint(5, tok.vocab_size, (5, 11)), torch.ones(5, 11, dtype=torch.bool)
    mask[1, 7:] = False
    batch = EncoderBatch(tokens, mask)
    logits = open_model(tmp_path / "run").network.eval()(batch)
    torch.testing.assert_close(logits, network(batch), rtol=0, atol=1e-4 * max(1.0, float(logits.abs().max())))
    assert load(tmp_path / "run").classes == ["a", "b", "c"]


def test_what_no_classifier_of_ours_computes_is_refused(hub: Hub, tmp_path: Path) -> None:
    for name, settings, reason in (
        ("BertForMultipleChoice", {}, "the architecture BertForMultipleChoice is not supported"),
        (
            "BertForSequenceClassification",
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            "predicts any number of classes per text",
        ),
        ("BertForSequenceClassification", {"num_labels": 3, "problem_type": "regression"}, "predicts several values"),
    ):
        folder, _ = hub(name, **settings)
        with pytest.raises(CheckpointError, match=reason):
            import_model(folder, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_tokenizer_without_special_tokens_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder, _ = hub("BertForSequenceClassification", num_labels=3)
    write_tokenizer(folder, tokenizer(), SimpleNamespace(kind="gpt", n_segments=2, max_length=60), False)
    with pytest.raises(CheckpointError, match="its tokenizer adds no special tokens"):
        import_model(folder, tmp_path / "run")


@torch.no_grad()
def test_a_llama_classifier_comes_in(hub: Hub, tmp_path: Path) -> None:
    """Its head reads the last token before the padding, as that of GPT-2. There is no way out: training adds a bias."""
    sizes = {"num_key_value_heads": 1, "head_dim": 12}
    folder, theirs = hub("LlamaForSequenceClassification", num_labels=3, pad_token_id=0, **sizes)
    import_model(folder, tmp_path / "run", classes=["a", "b", "c"])
    ours = open_model(tmp_path / "run")
    torch.manual_seed(1)
    tokens, mask = torch.randint(5, 300, (5, 11)), torch.ones(5, 11, dtype=torch.bool)
    mask[1, 7:], mask[4, 2:] = False, False
    tokens = tokens.where(mask, 0)
    expected = theirs(tokens, attention_mask=mask.long()).logits
    logits = ours.network.eval()(EncoderBatch(tokens, mask, None))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4 * max(1.0, float(expected.abs().max())))
    with pytest.raises(CheckpointError, match="transformers has no classifier on a gpt of this form"):
        export_model(tmp_path / "run", tmp_path / "out")
