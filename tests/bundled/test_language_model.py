"""The bundled language model: its size and card, and the notes' own sentences."""

import re
from pathlib import Path

import pytest
import torch

import clearformer
from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.handles.language_model import LanguageModel
from clearformer.loading.folder import LANGUAGE_MODEL, find
from clearformer.recipe import Recipe

RECIPE = Path(__file__).parents[2] / "recipes" / "tatoeba-en.toml"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    handle = clearformer.load(LANGUAGE_MODEL)
    assert isinstance(handle, LanguageModel)
    return handle


def test_it_takes_at_most_ten_megabytes() -> None:
    assert sum(file.stat().st_size for file in find(LANGUAGE_MODEL).iterdir()) <= 10e6


def test_its_weights_are_halves() -> None:
    weights, _ = load_tensors(RunFolder(find(LANGUAGE_MODEL)).model)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}


def test_its_card_attributes_the_data_and_says_what_it_cannot_do() -> None:
    card = (find(LANGUAGE_MODEL) / "README.md").read_text(encoding="utf-8")
    for part in (
        "CC BY 2.0",
        "www.manythings.org/anki",
        "tatoeba.org",
        "Limits",
        "perplexity",
        "recipes/tatoeba-en.toml",
    ):
        assert part in card


def test_it_was_trained_by_its_recipe() -> None:
    """All settings but the seed, the size of the vocabulary and the shape of batches, which training decides."""
    stored, given = Recipe.read(RunFolder(find(LANGUAGE_MODEL)).recipe), Recipe.read(RECIPE)
    for table in ("data", "text", "optim", "schedule"):
        assert getattr(stored, table) == getattr(given, table)
    assert stored.model == given.model.changed(vocab=stored.model.vocab)
    assert stored.train == given.train.changed(seed=stored.train.seed, batches=stored.train.batches)


def test_a_cart_is_pulled_and_not_pooled(model: LanguageModel) -> None:
    """The margin of a sentence of nine tokens is several nats; float32 is exact to less than a thousandth of one."""
    pulled, pooled = model.score(["The man pulled a cart", "The man pooled a cart"])
    assert pulled.logprob > pooled.logprob + 1
    assert (pulled.tokens, pooled.tokens) == (7, 8)
    assert pulled.perplexity > pooled.perplexity  # per token, the order is the other way round


def test_words_are_whole(model: LanguageModel) -> None:
    ids = model.tokenizer.encode(["The man pulled a cart"])[0]
    assert model.tokenizer.decode([ids]) == ["The man pulled a cart"]
    assert [model.tokenizer.decode([[i]])[0].strip() for i in ids[:4]] == ["The", "man", "pulled", "a"]


def test_it_prefers_english_in_order(model: LanguageModel) -> None:
    pairs = [
        ("He doesn't know the answer.", "He don't know the answer."),
        ("She is my sister.", "She my is sister."),
        ("I have two cats.", "I have two cat."),
        ("Where is the station?", "Where the station is?"),
        ("They were late again.", "They was late again."),
    ]
    for good, bad in pairs:
        first, second = model.score([good, bad])
        assert first.logprob > second.logprob, (good, bad)


def test_samples_end_and_are_sentences(model: LanguageModel) -> None:
    samples = model.generate(["The man"], n=7, seed=0, temperature=0.8, max_new=60)[0]
    assert sum(one.ended == "eos" for one in samples) >= 6
    assert all(re.fullmatch(r".*[.?!\"]", one.text) for one in samples if one.ended == "eos")
