"""Models of ours in onnxruntime: the same logits and the same greedy search, for other shapes than those exported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.checkpoint import weights_of
from clearformer.data.batch import EncoderBatch, ImageBatch
from clearformer.errors import CheckpointError, ConfigError
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

    def make(table: dict[str, Any], classes: list[str] | None = None) -> tuple[Any, Any, dict[str, Any]]:
        tokenizer = train_tokenizer(LINES, TextConfig(kind="byte-bpe", vocab_size=301, strict=False, min_frequency=1))
        sides = ("source_vocab", "target_vocab") if "n_encoder_layers" in table else ("vocab",)
        is_text = table["kind"] not in ("resnet", "vit")
        sizes = dict.fromkeys(sides, tokenizer.vocab_size) if is_text else {}
        if "base" in table:
            table, sizes = {**table, "base": {**table["base"], **sizes}}, {}
        config = parse_model({**table, **sizes}, "[model]")
        torch.manual_seed(0)
        network = build_model(config)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        recipe = foreign_recipe(config, Origin(source="nowhere"))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        {"kind": "transformer", "share": "all", **PAIR},
        {"kind": "transformer", "residual": "post", "final_norm": False, "n_kv_heads": 1, **PAIR},
        {"kind": "t5", "share": "all", "d_head": 13, **PAIR},
    ],
    ids=["pre-norm", "post-norm", "t5"],
)
@torch.no_grad()
def test_a_translator_searches_greedily(exported: Callable[..., Any], table: dict[str, Any]) -> None:
    network, session, facts = exported(table)
    torch.manual_seed(1)
    source, mask = torch.randint(4, 200, (5, 11)), torch.ones(5, 11, dtype=torch.bool)
    mask[1, 4:], mask[3, 9:] = False, False
    first = {"transformer": "bos", "t5": "pad"}[table["kind"]]
    start = torch.full((5,), {"bos": 1, "pad": 0}[first])
    state = network.start(source, mask)
    limits = torch.full((5,), 13)
    expected = beam_search(network, state, start, facts["eos"], limits, DecodeConfig(beam=1))
    (tokens,) = session.run(None, {"source": source.numpy(), "mask": mask.numpy(), "max_new": np.array(13)})
    for row, hypotheses in zip(tokens.tolist(), expected):
        assert (row[: row.index(facts["eos"])] if facts["eos"] in row else row) == hypotheses[0].tokens


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, LLAMA], ids=["gpt2", "llama"])
@torch.no_grad()
def test_a_language_model_continues_a_prompt(exported: Callable[..., Any], changes: dict[str, Any]) -> None:
    network, session, facts = exported({"kind": "gpt", "n_layers": 2, **STACK, **changes})
    torch.manual_seed(1)
    prompt = torch.randint(4, 200, (3, 5))
    state = network.start(prompt[:, :-1], None)
    limits = torch.full((3,), 17)
    expected = beam_search(network, state, prompt[:, -1], facts["eos"], limits, DecodeConfig(beam=1))
    (tokens,) = session.run(None, {"prompt": prompt.numpy(), "max_new": np.array(17)})
    for row, hypotheses in zip(tokens.tolist(), expected):
        assert (row[: row.index(facts["eos"])] if facts["eos"] in row else row) == hypotheses[0].tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    "base",
    [
        {"kind": "bert", "n_layers": 2, **STACK},
        {"kind": "textcnn", "d_model": 15, "d_embedding": 13},
        {"kind": "birnn", "d_model": 14},
    ],
    ids=lambda base: base["kind"],
)
@torch.no_grad()
def test_a_classifier_of_texts(exported: Callable[..., Any], base: dict[str, Any]) -> None:
    try:
        network, session, facts = exported({"kind": "classifier", "base": base, "n_classes": 3}, ["a", "b", "c"])
    except CheckpointError as error:
        assert base["kind"] == "birnn"
        assert "cannot be exported to ONNX" in str(error)  # noqa: PT017
        return
    torch.manual_seed(1)
    tokens, mask = torch.randint(4, 200, (5, 13)), torch.ones(5, 13, dtype=torch.bool)
    mask[2, 7:] = False
    segments = torch.zeros_like(tokens)
    given = {"tokens": tokens, "mask": mask, "segments": segments}
    (logits,) = session.run(None, {name: given[name].numpy() for name in facts["inputs"]})
    assert_close(network(EncoderBatch(tokens, mask, segments)), logits)
    assert facts["classes"] == ["a", "b", "c"]


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
