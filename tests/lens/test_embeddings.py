import pytest
import torch

from clearformer.errors import DataError
from clearformer.layers.pca import fit_pca
from clearformer.lens.embeddings import on_a_plane, place


def test_two_numbers_are_a_place_and_more_are_projected() -> None:
    torch.manual_seed(0)
    points = torch.randn(11, 2)
    assert on_a_plane(points) == {"points": points.tolist(), "explained": None}
    more = torch.randn(11, 5).double()
    told = on_a_plane(more)
    points = torch.tensor(told["points"], dtype=torch.float64)
    torch.testing.assert_close(points, fit_pca(more, 2).transform(more))
    assert 0 < sum(told["explained"]) < 1


def test_a_classifiers_vectors_beside_pixels(eye, album) -> None:
    resnet = eye("resnet")
    told = place(resnet, album(resnet, 11))
    assert list(told["views"]) == ["vector of 7 numbers", "pixels"]
    assert all(torch.tensor(view["points"]).shape == (11, 2) for view in told["views"].values())
    assert told["labels"][:4] == ["cat", "dog", "owl", "cat"]
    assert "pictures" not in told


def test_an_autoencoder_gives_back_beside_pca(eye, album) -> None:
    """Untrained it is worse; the errors are those of its own handle, and of the variance that PCA leaves."""
    coder = eye("autoencoder")
    pictures = album(coder, 17)
    told = place(coder, pictures)
    ours, theirs = told["error"].values()
    assert ours == pytest.approx(float(coder.errors(pictures.pixels).mean()))
    flat = torch.from_numpy(pictures.pixels).double().flatten(1) / 255
    left = fit_pca(flat, 17).variances[3:].sum() * 16 / 17 / 13**2 / 0.3**2
    assert theirs == pytest.approx(float(left))
    assert {name: len(row) for name, row in told["pictures"].items()} == dict.fromkeys(told["pictures"], 10)
    assert list(told["pictures"]) == ["original", "autoencoder", "PCA of 3, fitted to these"]


def test_a_plane_takes_three_pictures(eye, album) -> None:
    resnet = eye("resnet")
    with pytest.raises(DataError, match="2 pictures are too few for a plane"):
        place(resnet, album(resnet, 2))
