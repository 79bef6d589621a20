import pytest
import torch

from clearformer.data.text_sample import TextSample
from clearformer.errors import DataError
from clearformer.handles.text_encoder import TextEncoder
from clearformer.layers.pca import fit_pca
from clearformer.lens import embeddings
from clearformer.lens.embeddings import count_tokens, on_a_plane, place, place_texts
from clearformer.models.bert import Bert, BertConfig
from clearformer.text import TextConfig, train_tokenizer

TEXTS = ["the dog sees a dog", "a cat", "", "the cat sees the river", "a dog hears the river", "a river", "the dog"]


def test_two_numbers_are_a_place_and_more_are_projected() -> None:
    torch.manual_seed(0)
    points = torch.randn(11, 2)
    assert on_a_plane(points) == {"points": points.tolist(), "explained": None}
    more = torch.randn(11, 5).double()
    told = on_a_plane(more)
    points = torch.tensor(told["points"], dtype=torch.float64)
    torch.testing.assert_close(points, fit_pca(more, 2).transform(more))
    assert 0 < sum(told["explained"]) < 1


def test_a_classifiers_vectors_beside_pixels(handle, sample) -> None:
    resnet = handle("resnet")
    told = place(resnet, sample(resnet, 11))
    assert list(told["views"]) == ["vector of 7 numbers", "pixels"]
    assert all(torch.tensor(view["points"]).shape == (11, 2) for view in told["views"].values())
    assert told["labels"][:4] == ["cat", "dog", "owl", "cat"]
    assert "images" not in told


def test_an_autoencoder_gives_back_beside_pca(handle, sample) -> None:
    """Untrained it is worse; the errors are those of its own handle, and of the variance that PCA leaves."""
    coder = handle("autoencoder")
    images = sample(coder, 17)
    told = place(coder, images)
    ours, theirs = told["error"].values()
    assert ours == pytest.approx(float(coder.errors(images.pixels).mean()))
    flat = torch.from_numpy(images.pixels).double().flatten(1) / 255
    left = fit_pca(flat, 17).variances[3:].sum() * 16 / 17 / 13**2 / 0.3**2
    assert theirs == pytest.approx(float(left))
    assert {name: len(row) for name, row in told["images"].items()} == dict.fromkeys(told["images"], 10)
    assert list(told["images"]) == ["original", "autoencoder", "PCA of 3, fitted to these"]


def test_a_plane_takes_three_images(handle, sample) -> None:
    resnet = handle("resnet")
    with pytest.raises(DataError, match="2 images: a figure of embeddings needs at least 3"):
        place(resnet, sample(resnet, 2))


def test_tokens_are_counted_as_scikit_learn_counts_words() -> None:
    from_text = pytest.importorskip("sklearn.feature_extraction.text")
    tokenizer = train_tokenizer(TEXTS, TextConfig(kind="word", min_frequency=1, vocab_size=50))
    words = sorted({word for text in TEXTS for word in text.split()}, key=lambda word: tokenizer.encode([word])[0])
    expected = from_text.CountVectorizer(analyzer=str.split, vocabulary=words).transform(TEXTS).toarray()
    assert count_tokens(tokenizer.encode(TEXTS)).tolist() == expected.tolist()


def test_the_commonest_tokens_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "TOKENS", 2)
    assert count_tokens([[7, 3, 3], [], [5, 5, 3], [11, 5]]).tolist() == [[2, 0], [0, 0], [1, 2], [0, 1]]


def test_texts_beside_their_words() -> None:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, TextConfig(kind="word", min_frequency=1, vocab_size=50))
    sizes = {"n_layers": 1, "d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11}
    encoder = TextEncoder(Bert(BertConfig(vocab=tokenizer.vocab_size, **sizes)), tokenizer, "tiny")
    labels = list("xyzxyzx")
    told = place_texts(encoder, TextSample(TEXTS, labels))
    assert told["title"] == "7 texts: embeddings by tiny, compared with token counts"
    assert (list(told["views"]), told["labels"]) == (["vector of 10 numbers", "counts of 7 tokens"], labels)
    vectors = encoder.embed(TEXTS).double()
    points = torch.tensor(told["views"]["vector of 10 numbers"]["points"], dtype=torch.float64)
    torch.testing.assert_close(points, fit_pca(vectors, 2).transform(vectors))
    with pytest.raises(DataError, match="2 texts: a figure of embeddings needs at least 3"):
        place_texts(encoder, TextSample(TEXTS[:2], labels[:2]))
