"""Words as vectors: projections, mixtures, a look-up, one-hot vectors, phrases."""

from collections.abc import Iterator
from math import exp

import torch

from clearformer.data.batch import EncoderBatch
from clearformer.layers.attention import MultiHeadAttention, attend, contextualise
from clearformer.layers.embeddings import OneHot
from clearformer.models.textcnn import TextCNN, TextCNNConfig
from clearformer.worked.example import Figure, worked

NOTES = "handwritten Transformer notes"


@worked("apple", "Apple, Orange and Watch, projected from three features to two", f"{NOTES}, l.79-105",
        MultiHeadAttention.remember)  # fmt: skip
def apple() -> Iterator[Figure]:
    """The columns are tech, time and fruit; the matrix is used as Wk of a layer with one head."""
    words = {"Apple": [2.0, 0.0, 2.0], "Orange": [0.0, 0.0, 3.0], "Watch": [1.0, 3.0, 0.0]}
    matrix = torch.tensor([[4.0, 3.0], [2.0, 1.0], [0.0, 1.0]])
    layer = MultiHeadAttention(d_model=3, n_heads=1, d_head=2, bias=False)
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([matrix.T] * 3))
        keys, _ = layer.remember(torch.tensor([list(words.values())]))
    notes = {"Apple": [8, 8], "Orange": [0, 3], "Watch": [10, 6]}
    for word, row in zip(words, keys[0, 0].tolist()):
        yield Figure(f"{word} · W", row, notes[word])


@worked("mixture", "Apple = 0.1 love + 0.5 apple + 0.4 phones", f"{NOTES}, l.17-19", attend)
def mixture() -> Iterator[Figure]:
    """The notes give the weights. Each word is a unit vector here, so that the mixture shows them."""
    weights = torch.tensor([0.1, 0.5, 0.4], dtype=torch.float64)
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    words = torch.eye(3, dtype=torch.float64)[None, None]
    mixed = attend(0 * one, one.expand(1, 1, 3, 1), words, bias=weights.log())
    yield Figure("shares of love, apple, phones", mixed.flatten().tolist(), [0.1, 0.5, 0.4])


@worked("parameter-free", "attention without parameters: softmax(E Eᵀ) E", f"{NOTES}, l.26-36", contextualise)
def parameter_free() -> Iterator[Figure]:
    """love, apple and phones as three vectors, of which the last two are alike: apple leans towards phones."""
    E = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 1, 0]], dtype=torch.float64)
    scores = [exp(0), exp(2), exp(1)]  # of apple with love, apple, phones
    love, apple, phones = (score / sum(scores) for score in scores)
    mixed = contextualise(E)
    yield Figure("apple in context", mixed[1].tolist(), expected=[love, apple + phones, apple])
    is_symmetric = torch.equal(E @ E.T, (E @ E.T).T)
    yield Figure("“the same vector” as query and key: score(a, b) = score(b, a)", str(is_symmetric), "True")


@worked("lookup", "query, key, value: the sound of [dog] is bark", f"{NOTES}, l.107-117", attend)
def lookup() -> Iterator[Figure]:
    """With sharp scores attention is a dictionary; with soft ones it mixes the values of similar keys."""
    sounds = {"dog": "bark", "cat": "meow", "cow": "moo"}
    keys = torch.tensor([[[[1.0, 0, 0], [0.6, 0.8, 0], [0, 0, 1]]]], dtype=torch.float64)  # a cat resembles a dog
    values = torch.eye(3, dtype=torch.float64)[None, None]
    sharp, soft = (attend(keys[:, :, :1], keys, values, scale=scale).flatten().tolist() for scale in (100.0, 1.0))
    answer = list(sounds.values())[max(range(3), key=sharp.__getitem__)]
    yield Figure("sound of [dog]", answer, "bark")
    yield Figure("share of bark, scores times 100", sharp[0], expected=1.0)
    total = exp(1) + exp(0.6) + exp(0)
    yield Figure("shares of bark, meow, moo", soft, expected=[exp(1) / total, exp(0.6) / total, 1 / total])


@worked("one-hot", "b, a, d as unit vectors of 26 letters", "deep-learning course, 27/03, l.710-716", OneHot.forward)
def one_hot() -> Iterator[Figure]:
    vectors = OneHot(26)(torch.tensor([ord(letter) - ord("a") for letter in "bad"]))
    for letter, vector, place in zip("bad", vectors, (2, 1, 26)):
        slip = "they set the last of the 26 entries; d is the fourth letter" if letter == "d" else ""
        here = vector.argmax().item() + 1
        yield Figure(f"place of the 1 in `{letter}`", here, place, expected=4 if slip else None, slip=slip)
    yield Figure("sum of each vector", vectors.sum(1).tolist(), [1, 1, 1])


@worked("paraphrase", "I went to IIT in year 2017; In 2017, I went to IIT", "deep-learning course, 27/03, l.653-673",
        TextCNN.hidden)  # fmt: skip
def paraphrase() -> Iterator[Figure]:
    """Each filter counts the words of a phrase that are in place; a text keeps the largest count of each filter."""
    texts = [["i", "went", "to", "iit", "in", "year", "2017"], ["in", "2017", "i", "went", "to", "iit"]]
    phrases = [["i", "went", "to"], ["in", "year", "2017"]]
    words = sorted({word for text in texts for word in text})
    network = TextCNN(
        TextCNNConfig(vocab=len(words), widths=(3,), d_model=2, d_embedding=len(words), dropout=0, word_head=False)
    )
    with torch.no_grad():
        network.embedding.weight.copy_(torch.eye(len(words)))
        (filters,) = network.filters
        weight, bias = filters.parameters()
        weight.zero_()
        bias.zero_()
        for f, phrase in enumerate(phrases):
            for place, word in enumerate(phrase):
                weight[f, words.index(word), place] = 1
        batches = [EncoderBatch(torch.tensor([[words.index(word) for word in text]])) for text in texts]
        pooled = torch.stack([network.hidden(batch)[0].amax(0) for batch in batches])  # (2 texts, 2 phrases)
    yield Figure("vectors of texts of 7 and 6 words", list(pooled.shape), expected=[2, 2])
    yield Figure("words of “I went to” in place", pooled[:, 0].tolist(), expected=[3, 3])
    yield Figure("words of “in year 2017” in place", pooled[:, 1].tolist(), expected=[3, 1])
