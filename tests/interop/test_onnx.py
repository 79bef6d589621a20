"""Models of ours in onnxruntime: the same logits and the same greedy search, for other shapes than those exported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.checkpoint import weights_of
from clearformer.data.batch import EncoderBatch, ImageBatch, SoundBatch
from clearformer.data.sound import SoundConfig, SoundFrontend
from clearformer.errors import ConfigError
from clearformer.generation.beam import beam_search
from clearformer.generation.decode import DecodeConfig
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.open import open_model
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, train_tokenizer
from clearformer.verbs.export import export_model

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

LINES = ["The dog sees a tree, it's 12 metres high.", "A man likes the river; a cat hears the book?", "Der Hund."] * 5
STACK: dict[str, Any] = {"d_model": 28, "d_ff": 46, "n_heads": 2, "max_length": 61}
PAIR = {"n_encoder_layers": 2, "n_decoder_layers": 1, **STACK}
LLAMA = {"norm": "rms", "activation": "swiglu", "positions": {"kind": "rotary"}, "bias": False, "n_kv_heads": 1}


@pytest.fixture
def exported(tmp_path: Path) -> Callable[..., tuple[Any, Any, dict[str, Any]]]:
    """Export a model with random weights; returns it, the ONNX session and model.json."""

    def make(table: dict[str, Any], classes: list[str] | None = None, **tables: Any) -> tuple[Any, Any, dict[str, Any]]:
        tokenizer = train_tokenizer(LINES, TextConfig(kind="byte-bpe", vocab_size=301, strict=False, min_frequency=1))
        is_pair = table["kind"] in ("transformer", "t5", "seq2seq")
        sides = ("source_vocab", "target_vocab") if is_pair else ("vocab",)
        is_text = table["kind"] not in ("resnet", "vit", "autoencoder")
        sizes = dict.fromkeys(sides, tokenizer.vocab_size) if is_text else {}
        if "base" in table:
            table, sizes = {**table, "base": {**table["base"], **sizes}}, {}
        config = parse_model({**table, **sizes}, "[model]")
        torch.manual_seed(0)
        network = build_model(config)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.8 if table["kind"] in ("seq2seq", "rnn-lm") else 0.2)
        recipe = foreign_recipe(config, Origin(source="nowhere")).with_tables(**tables)
        write_run(tmp_path / "run", recipe, weights_of(network), [tokenizer] * len(sides) * is_text, classes=classes)
        export_model(tmp_path / "run", tmp_path / "onnx", "onnx")
        session = ort.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
        facts = json.loads((tmp_path / "onnx" / "model.json").read_text())
        return open_model(tmp_path / "run").network.eval(), session, facts

    return make


def assert_close(ours: torch.Tensor, theirs: np.ndarray) -> None:
    """Both in float32, with sums in another order."""
    bound = 1e-4 * max(1.0, float(ours.abs().max()))
    torch.testing.assert_close(torch.from_numpy(theirs), ours, rtol=0, atol=bound)


def assert_same_search(network: Any, state: Any, first: torch.Tensor, feeds: dict[str, Any], exported: Any) -> None:
    """The tokens of greedy search, and the sum of their log-probabilities, for 13 tokens at most.

    Untrained batch norms do not normalise, so that residuals of thousands may write the same tokens for all rows.
    """
    _, session, facts = exported
    limits = torch.full((len(first),), 13)
    expected = beam_search(network, state, first, facts["eos"], limits, DecodeConfig(beam=1))
    values = session.run(facts["outputs"], {**{k: v.numpy() for k, v in feeds.items()}, "max_new": np.array(13)})
    for row, logprobs, hypotheses in zip(*map(np.ndarray.tolist, values), expected, strict=True):
        assert (row[: row.index(facts["eos"])] if facts["eos"] in row else row) == hypotheses[0].tokens
        bound = 1e-4 * max(1.0, abs(hypotheses[0].logprob))
        assert sum(logprobs) == pytest.approx(hypotheses[0].logprob, rel=0, abs=bound)
    has_batch_norm = any(isinstance(module, torch.nn.BatchNorm1d) for module in network.modules())
    assert has_batch_norm or len({tuple(row) for row in values[0].tolist()}) > 1


def pair_feeds() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    mask = torch.ones(5, 11, dtype=torch.bool)
    mask[1, 4:], mask[3, 9:] = False, False
    return {"source": torch.randint(4, 200, (5, 11)), "mask": mask}


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        {"kind": "transformer", "share": "all", **PAIR},
        {"kind": "transformer", "residual": "post", "final_norm": False, "n_kv_heads": 1, **PAIR},
        {"kind": "t5", "share": "all", "d_head": 13, **PAIR},
        {"kind": "transformer", "share": "all", "norm": "batch", "d_value": 5, **PAIR},
        {"kind": "transformer", "norm": "none", "residual": "none", "positions": {"kind": "none"}, **PAIR},
    ],
    ids=["pre-norm", "post-norm", "t5", "batch-norm", "bare"],
)
@torch.no_grad()
def test_a_translator_searches_greedily(exported: Callable[..., Any], table: dict[str, Any]) -> None:
    network, *_ = files = exported(table)
    feeds, first = pair_feeds(), {"transformer": 1, "t5": 0}[table["kind"]]  # BOS, padding
    assert_same_search(network, network.start(*feeds.values()), torch.full((5,), first), feeds, files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "attention"), [("gru", "additive"), ("lstm", "none"), ("gru-notes", "additive"), ("rnn-notes", "none")]
)
@torch.no_grad()
def test_a_recurrent_translator_searches_greedily(exported: Callable[..., Any], cell: str, attention: str) -> None:
    sizes = {"d_model": 13, "d_embedding": 11, "d_align": 7}
    network, *_ = files = exported({"kind": "seq2seq", "cell": cell, "attention": attention, **sizes})
    feeds = pair_feeds()
    assert_same_search(network, network.start(*feeds.values()), torch.ones(5, dtype=torch.long), feeds, files)


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        {"kind": "gpt", "n_layers": 2, **STACK},
        {"kind": "gpt", "n_layers": 2, **STACK, **LLAMA},
        {"kind": "gpt", "n_layers": 2, **STACK, "norm": "batch", "attention_scale": 1.0},
        {"kind": "rnn-lm", "cell": "lstm", "n_layers": 2, "d_model": 13},
        {"kind": "rnn-lm", "cell": "gru-simple", "n_layers": 2, "d_model": 13, "embedding": "one-hot"},
    ],
    ids=["gpt2", "llama", "batch-norm", "lstm", "one-hot"],
)
@torch.no_grad()
def test_a_language_model_continues_a_prompt(exported: Callable[..., Any], table: dict[str, Any]) -> None:
    network, *_ = files = exported(table)
    torch.manual_seed(1)
    for length in (5, 1):
        prompt = torch.randint(4, 200, (3, length))
        state = network.start(prompt[:, :-1], None)
        assert_same_search(network, state, prompt[:, -1], {"prompt": prompt}, files)


@pytest.mark.slow
@pytest.mark.parametrize(
    "base",
    [
        {"kind": "bert", "n_layers": 2, **STACK},
        {"kind": "textcnn", "d_model": 15, "d_embedding": 13},
        {"kind": "birnn", "d_model": 14, "n_layers": 2},
        {"kind": "rnn-lm", "d_model": 13, "n_layers": 1},
    ],
    ids=lambda base: base["kind"],
)
@torch.no_grad()
def test_a_classifier_of_texts(exported: Callable[..., Any], base: dict[str, Any]) -> None:
    table = {"kind": "classifier", "base": base, "n_classes": 3}
    network, session, facts = exported(table, ["a", "b", "c"])
    batch, (logits,) = read_texts(session, facts)
    assert_close(network(batch), logits)
    assert facts["classes"] == ["a", "b", "c"]


def read_texts(session: Any, facts: dict[str, Any]) -> tuple[EncoderBatch, Any]:
    """Run a session on padded texts; returns the texts and its outputs."""
    torch.manual_seed(1)
    tokens, mask = torch.randint(4, 200, (5, 13)), torch.ones(5, 13, dtype=torch.bool)
    mask[2, 7:] = False
    segments = (torch.arange(13) > 4).long().expand(5, 13)
    given = {"tokens": tokens, "mask": mask, "segments": segments}
    outputs = session.run(None, {name: given[name].numpy() for name in facts["inputs"]})
    return EncoderBatch(tokens, mask, segments), outputs


@pytest.mark.slow
@pytest.mark.parametrize("heads", ["words", "sentences", "none"])
@torch.no_grad()
def test_a_bert_gives_the_logits_of_its_head(exported: Callable[..., Any], heads: str) -> None:
    """Of its word head if it has one, or else of its next-sentence head; without heads, it gives hidden states."""
    has_heads = {"word_head": heads == "words", "next_sentence_head": heads != "none"}
    network, session, facts = exported({"kind": "bert", "n_layers": 2, **STACK, **has_heads})
    batch, (values,) = read_texts(session, facts)
    hidden = network.hidden(batch)
    expected = {
        "words": lambda: network.head(hidden),
        "sentences": lambda: network.next_sentence(network.pooled(hidden)),
        "none": lambda: hidden,
    }[heads]()
    real = batch.mask if values.ndim == 3 else slice(None)
    assert_close(expected[real], values[real if isinstance(real, slice) else real.numpy()])
    assert facts["outputs"] == ["hidden" if heads == "none" else "logits"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        {"kind": "speech-rnn", "n_layers": 2, "d_model": 22, "channels": 11},
        {"kind": "speech-rnn", "cell": "gru-notes", "n_layers": 1, "d_model": 22, "channels": 11, "strides": [3]},
        {"kind": "speech-transformer", "n_layers": 2, "d_model": 28, "d_ff": 46, "n_heads": 2, "channels": 11},
    ],
    ids=["lstm", "gru", "transformer"],
)
@torch.no_grad()
def test_a_speech_recogniser_reads_samples(exported: Callable[..., Any], table: dict[str, Any]) -> None:
    sound = SoundConfig(rate=2000, n_mels=11, window=0.032, hop=0.016)
    network, session, facts = exported(table, sound=sound)
    torch.manual_seed(1)
    lengths = torch.tensor([3001, 64, 1999])
    samples = (3000 * torch.randn(3, 3001)).short() * (torch.arange(3001) < lengths[:, None])
    logits, n_frames = session.run(None, {"samples": samples.numpy(), "lengths": lengths.numpy()})
    batch = SoundFrontend(sound).eval()(SoundBatch(samples, lengths))
    expected, n = network(batch), network.shortened(batch.lengths)
    assert n_frames.tolist() == n.tolist()
    assert (facts["blank"], facts["rate"]) == (network.config.vocab, 2000)
    for row, length in enumerate(n.tolist()):
        assert_close(expected[row, :length], logits[row, :length])


@pytest.mark.slow
@torch.no_grad()
def test_an_autoencoder_gives_the_code_and_the_image(exported: Callable[..., Any]) -> None:
    network, session, facts = exported({"kind": "autoencoder", "size": 13, "channels": 3, "d_code": 7}, ["a", "b"])
    pixels = torch.randn(3, 3, 13, 13)
    code, image = session.run(facts["outputs"], {"pixels": pixels.numpy()})
    assert_close(network.hidden(ImageBatch(pixels)), code)
    assert_close(network(ImageBatch(pixels)), image)
    assert "classes" not in facts


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        {"kind": "resnet", "size": 32, "n_classes": 5},
        {"kind": "vit", "size": 32, "patch": 8, "n_layers": 1, "n_classes": 5, "d_model": 28, "d_ff": 46, "n_heads": 2},
    ],
    ids=lambda table: table["kind"],
)
@torch.no_grad()
def test_a_classifier_of_images(exported: Callable[..., Any], table: dict[str, Any]) -> None:
    network, session, facts = exported(table, list("abcde"))
    pixels = torch.randn(3, facts["channels"], 32, 32)
    (logits,) = session.run(None, {"pixels": pixels.numpy()})
    assert_close(network(ImageBatch(pixels)), logits)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean `onnx`"):
        export_model("en-fr-small", tmp_path / "x", "onx")
