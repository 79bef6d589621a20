"""Maps of token embeddings, neighbours and arithmetic, for every kind of model with token embeddings."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

import clearformer
from clearformer.errors import ClearformerError, ConfigError, DataError
from clearformer.handles.word_vectors import parse_sum
from clearformer.verbs.lens import view

from .small_handles import TEXT, small

SINGLE = ("gpt", "rnn-lm", "bert", "birnn", "textcnn", "bert-of-classifier", "birnn-of-classifier")
PAIRS = ("transformer", "t5", "seq2seq")


def weight_of(model: Any) -> Any:
    network = getattr(model.model, "base", model.model)
    return network.embedding.weight if hasattr(network, "embedding") else network.source_embedding.weight


@pytest.mark.parametrize("kind", [*SINGLE, *PAIRS])
def test_distances_in_a_map_are_at_most_the_distances_of_the_embeddings(kind: str) -> None:
    """With 5 tokens, three components leave one out: the projection shortens distances, and keeps the variance."""
    model = small(kind)
    values = view("vectors", model, TEXT, **({"target": "a queen saw the man"} if kind in PAIRS else {}))
    json.dumps(values)
    assert [one["name"] for one in values["maps"]] == (["source", "target"] if kind in PAIRS else ["tokens"])
    first = values["maps"][0]
    assert first["tokens"] == TEXT.split()
    tokenizer = model.embedding_tables()[0].tokenizer
    rows = weight_of(model).detach()[tokenizer.encode([TEXT])[0]].double()
    points = torch.tensor(first["points"], dtype=torch.float64)
    assert points.shape == (5, 3)
    assert (torch.cdist(points, points) <= torch.cdist(rows, rows) + 1e-9).all()
    kept = points.var(0).sum() / rows.var(0).sum()
    torch.testing.assert_close(kept, torch.tensor(first["explained"], dtype=torch.float64).sum())
    torch.testing.assert_close(torch.tensor(first["norms"], dtype=torch.float64), rows.norm(dim=1))
    assert first["cosines"][0][3] == pytest.approx(float(cosine_similarity(rows[0], rows[3], dim=0)))


def test_words_of_several_tokens_have_the_mean_of_their_vectors() -> None:
    model = clearformer.load()
    values = view("vectors", model, words="station, bike elephant antidisestablishment")
    [one] = values["maps"]
    assert one["tokens"] == ["station", "bike", "elephant", "antidisestablishment"]
    table = model.embedding_tables()[0]
    ids = table.tokenizer.encode(["antidisestablishment"])[0]
    assert len(ids) > 1
    assert one["norms"][3] == pytest.approx(float(table.weight[ids].mean(0).norm()), rel=1e-5)
    french = view("vectors", model, words="gare chien chat", layer="target")["maps"][0]
    assert (french["name"], french["tokens"]) == ("target", ["gare", "chien", "chat"])


@pytest.mark.parametrize("kind", ["html", "svg", "png"])
def test_maps_are_drawn_in_two_and_three_dimensions(tmp_path: Path, kind: str) -> None:
    values = view("vectors", small("gpt"), TEXT, tmp_path / f"map.{kind}")
    assert list(values.figures) == ["tokens, two dimensions", "tokens, three dimensions"]
    content = (tmp_path / f"map.{kind}").read_bytes()
    assert content.count(b"<svg") == {"html": 2, "svg": 1, "png": 0}[kind]


def test_mistakes_are_explained() -> None:
    for options, message in (
        ({"text": "the king"}, "2 different tokens: a map needs at least 3"),
        ({}, "needs TEXT or --words"),
        ({"words": "king quen man"}, "`quen` is not in the vocabulary of gpt\nhint: did you mean `queen`"),
        ({"text": TEXT, "layer": "source"}, "no embeddings called `source`\nhint: omit --layer"),
    ):
        with pytest.raises(ClearformerError, match=message):
            view("vectors", small("gpt"), **options)
    with pytest.raises(ConfigError, match="speech recogniser: it has no token embeddings"):
        view("vectors", small("speech-rnn"), words="a king saw")


@pytest.mark.parametrize("kind", [*SINGLE, *PAIRS])
def test_arithmetic_by_hand(kind: str) -> None:
    """king − man + woman: the best row is the argmax of the cosine with the sum of unit vectors."""
    model = small(kind)
    tokenizer = model.embedding_tables()[0].tokenizer
    rows = normalize(weight_of(model).detach(), dim=1)
    king, man, woman = (rows[tokenizer.encode([word])[0][0]] for word in ("king", "man", "woman"))
    cosines = rows @ normalize(king - man + woman, dim=0)
    results = model.neighbours("king - man + woman", 3)
    assert model.neighbours("king − man + woman", 3) == results
    assert model.neighbours("woman + king - man", 3)[0][0] == results[0][0]
    assert len(results) == 3
    assert not {"king", "man", "woman", "<unk>", "[MASK]"} & {word for word, _ in results}
    for word, cosine in results:
        assert cosine == pytest.approx(float(cosines[tokenizer.encode([word])[0][0]]), abs=1e-6)
    ids = {id for word in ("king", "man", "woman") for id in tokenizer.encode([word])[0]} | {*tokenizer.special_ids}
    cosines[sorted(ids)] = -2
    assert results[0][1] == pytest.approx(float(cosines.max()), abs=1e-6)


def test_a_planted_analogy_is_solved() -> None:
    model = small("gpt")
    king, man, woman, queen = (model.tokenizer.encode([w])[0][0] for w in ("king", "man", "woman", "queen"))
    weight = model.model.embedding.weight.data
    for token in (king, man, woman):
        weight[token] /= weight[token].norm()
    weight[queen] = weight[king] - weight[man] + weight[woman]
    assert model.neighbours("king - man + woman", 1)[0] == ("queen", pytest.approx(1))


def test_one_hot_networks_are_compared_by_their_input_matrix() -> None:
    model = small("rnn-lm", embedding="one-hot")
    word, cosine = model.neighbours("king", 1)[0]
    U = model.model.layers.weights.weight_ih_l0.detach()  # (4·11, V)
    columns = [U[:, model.tokenizer.encode([w])[0][0]] for w in ("king", word)]
    assert cosine == pytest.approx(float(cosine_similarity(*columns, dim=0)), abs=1e-6)


def test_signs_need_spaces() -> None:
    assert parse_sum("well-known") == [(1, "well-known")]
    assert parse_sum("-") == [(1, "-")]
    assert parse_sum("ice cream") == [(1, "ice cream")]
    assert parse_sum("king - man + woman") == [(1, "king"), (-1, "man"), (1, "woman")]
    assert parse_sum("king − man") == [(1, "king"), (-1, "man")]
    assert parse_sum("- man + king") == [(-1, "man"), (1, "king")]
    with pytest.raises(ConfigError, match="a sign without a word"):
        parse_sum("king - + man")
    with pytest.raises(DataError, match="the zero vector"):
        small("gpt").neighbours("king - king")


def test_the_view_of_neighbours_is_their_list() -> None:
    model = small("gpt")
    values = view("neighbours", model, "king - man + woman", top=4)
    assert list(zip(values["tokens"], values["cosines"])) == model.neighbours("king - man + woman", 4)
    assert len(view("neighbours", model, "king")["tokens"]) == 10
    with pytest.raises(ConfigError, match="speech recogniser: it has no token embeddings"):
        view("neighbours", small("speech-rnn"), "king")
    with pytest.raises(ConfigError, match="the view `neighbours` does not take --layer"):
        view("neighbours", model, "king", layer="source")


def test_neighbours_of_the_bundled_translator() -> None:
    rows = clearformer.neighbours("en-fr-small", "dog - cat + cats", 3)
    assert len(rows) == 3
    assert rows == sorted(rows, key=lambda row: -row["cosine"])
    with pytest.raises(DataError, match="`नमस्ते` is not in the source vocabulary"):
        clearformer.neighbours("en-fr-small", "dog - नमस्ते")
