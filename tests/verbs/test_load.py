"""Models that Hugging Face's libraries wrote, ready for use: they say what they say there."""

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

import clearformer
from clearformer.errors import CheckpointError
from clearformer.handles.classifier import Classifier
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.translator import Translator
from clearformer.verbs.load import load, load_as, load_for, load_image_model

TEXTS = ["the dog sees a tree", "a man", "the cat likes the river book dog dog"]

Hub = Callable[..., Path]


def written(ids: torch.Tensor) -> list[int]:
    """Up to </s>, which is 0."""
    return list(takewhile(bool, ids.tolist()))


@pytest.mark.parametrize("kind", ["marian", "t5"])
@torch.no_grad()
def test_a_translator_from_hugging_face_says_what_it_says_there(hub: Hub, kind: str) -> None:
    path = hub(kind)
    theirs, tok = AutoModelForSeq2SeqLM.from_pretrained(path), PreTrainedTokenizerFast.from_pretrained(path)
    ours = load(path)
    assert isinstance(ours, Translator)
    assert ours.target_tokenizer.bos_id == tok.pad_token_id
    words: set[int] = set()
    for text in TEXTS:
        ids = torch.tensor([[*tok(text)["input_ids"], tok.eos_token_id]])
        for beam in (1, 3):
            said = theirs.generate(ids, max_length=23, num_beams=beam, do_sample=False, early_stopping=False)[0]
            found = ours.candidates([text], beam=beam, max_ratio=1e-9, max_extra=22)[0][0]
            assert found.tokens == written(said[1:])
            words |= {*found.tokens}
    assert len(words) > 3


@pytest.mark.parametrize(("kind", "is_opened"), [("gpt2", False), ("llama", True)])
@torch.no_grad()
def test_a_language_model_from_hugging_face_goes_on_as_it_does_there(hub: Hub, kind: str, is_opened: bool) -> None:
    path = hub(kind, is_opened=is_opened)
    theirs, tok = AutoModelForCausalLM.from_pretrained(path), PreTrainedTokenizerFast.from_pretrained(path)
    ours = load(path)
    assert isinstance(ours, LanguageModel)
    assert ours.opening == ([2] if is_opened else [])
    found = ours.generate(TEXTS, temperature=0, max_new=13)
    for text, told in zip(TEXTS, found):
        ids = torch.tensor([tok(text)["input_ids"]])
        said = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=13, do_sample=False)[0]
        assert told[0].tokens == written(said[ids.size(1) :])


def test_a_model_of_another_kind_is_refused_with_what_it_can_do(hub: Hub) -> None:
    path = hub("gpt2")
    assert isinstance(load_for("generate", path), LanguageModel)
    assert isinstance(load_as(LanguageModel, path), LanguageModel)
    uses = "a language model supports generate, score, fill, repair, embed, evaluate, neighbours, plot"
    with pytest.raises(CheckpointError, match="hub is a language model: it cannot translate") as caught:
        load_for("translate", path)
    assert caught.value.hint == uses
    with pytest.raises(CheckpointError, match="hub is a language model, not a translator") as caught:
        load_as(Translator, path)
    assert caught.value.hint == uses
    with pytest.raises(CheckpointError, match="hub is a language model, not an image model"):
        load_image_model(path)


def test_a_loaded_model_is_packed(hub: Hub) -> None:
    assert type(load(hub("gpt2")).model.decoder.blocks[0].mlp.up).__name__ == "PackedLinear"


def test_a_bert_without_a_mask_embeds(hub: Hub) -> None:
    path = hub("bert")
    assert load(path).embed(TEXTS).shape == (3, 14)
    message = r"hub is a text encoder: it cannot fill\nhint: a text encoder supports embed"
    with pytest.raises(CheckpointError, match=message):
        load_for("fill", path)


@pytest.mark.parametrize(("kind", "handle"), [("bert", TextEncoder), ("gpt2", LanguageModel), ("llama", LanguageModel)])
def test_load_opens_what_embed_and_finetune_open(hub: Hub, tmp_path: Path, kind: str, handle: type) -> None:
    """And the handle has the vectors that `embed` returns, also once it is a classifier."""
    path, labels = hub(kind), tmp_path / "labels.tsv"
    labels.write_text("the dog sees a tree\tlong\na man\tshort\nthe cat\tshort\n" * 3)
    run = tmp_path / "run"
    clearformer.finetune(path, labels=labels, valid=labels, out=run, settings=["train.steps=2"], device="cpu")
    for folder, expected in ((path, handle), (run, Classifier)):
        loaded = load(folder)
        assert type(loaded) is expected
        assert loaded.path == folder
        vectors = clearformer.embed(folder, TEXTS)
        np.testing.assert_array_equal(loaded.embed(TEXTS).numpy(), vectors)
        np.testing.assert_allclose(loaded.embed(TEXTS[0]).numpy(), vectors[0], rtol=1e-4, atol=1e-5)
