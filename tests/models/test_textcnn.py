"""The convolution over stacked word vectors, by hand and against torch's two-dimensional one."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearformer.data.batch import EncoderBatch
from clearformer.errors import ConfigError
from clearformer.models.classifier import Classifier, ClassifierConfig
from clearformer.models.textcnn import TextCNN, TextCNNConfig

B, T, V, E, N = 3, 7, 23, 5, 2


def build(widths: tuple[int, ...] = (2, 3, 4), **changes: Any) -> TextCNN:
    torch.manual_seed(0)
    sizes = {"vocab": V, "d_model": N * len(widths), "d_embedding": E, "dropout": 0.0, "widths": widths}
    return TextCNN(TextCNNConfig(**{**sizes, **changes})).double()


def test_by_hand() -> None:
    """One filter of two words over words of one number: relu(2 x_t − x_t+1 + 0.5), and zero beyond the end."""
    model = TextCNN(TextCNNConfig(vocab=4, d_model=1, d_embedding=1, widths=(2,), dropout=0.0))
    with torch.no_grad():
        model.embedding.weight.copy_(torch.tensor([[0.0], [1.0], [3.0], [5.0]]))
        model.filters[0].weight.copy_(torch.tensor([[[2.0, -1.0]]]))  # type: ignore[operator]
        model.filters[0].bias.fill_(0.5)  # type: ignore[operator]
    assert model.hidden(EncoderBatch(torch.tensor([[2, 3, 1]]))).flatten().tolist() == [1.5, 9.5, 2.5]
    assert model.hidden(EncoderBatch(torch.tensor([[1, 3, 2]]))).flatten().tolist() == [0.0, 7.5, 6.5]


def test_it_is_a_convolution_over_an_image_as_wide_as_its_filters() -> None:
    """The notes' image: words are rows of an image, and a filter is as wide as the image."""
    model, tokens = build(), torch.randint(V, (B, T))
    image = model.embedding(tokens)[:, None]  # (B, 1, T, E)
    found = []
    for width, part in zip((2, 3, 4), model.filters):
        kernel = part.weight.mT[:, None]  # (N, 1, width, E)
        padded = F.pad(image, (0, 0, (width - 1) // 2, width // 2))
        found.append(F.conv2d(padded, kernel, part.bias)[..., 0].mT)  # (B, T, N)
    torch.testing.assert_close(model.hidden(EncoderBatch(tokens)), F.relu(torch.cat(found, dim=2)))


def test_padding_cannot_matter() -> None:
    model, tokens = build(), torch.randint(V, (B, T))
    lengths = torch.tensor([4, 7, 1])
    hidden = model.hidden(EncoderBatch(tokens, torch.arange(T) < lengths[:, None]))
    for row, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(hidden[row : row + 1, :n], model.hidden(EncoderBatch(tokens[row : row + 1, :n])))


def test_the_largest_is_the_same_wherever_a_phrase_stands() -> None:
    base = {"kind": "textcnn", "vocab": V, "d_model": 6, "d_embedding": E, "widths": (1, 2, 3), "dropout": 0.0}
    torch.manual_seed(0)
    model = Classifier(ClassifierConfig(base=base, pooling="max", dropout=0.0))
    quiet = [0, 0, 0]
    with torch.no_grad():
        model.base.embedding.weight[0] = 0.0
    first, last = ([*phrase, *quiet] if at else [*quiet, *phrase] for at, phrase in ((1, [5, 6, 7]), (0, [5, 6, 7])))
    said = model(EncoderBatch(torch.tensor([[0, *first, 0], [0, *last, 0]])))
    torch.testing.assert_close(said[0], said[1])


def test_widths_divide_the_filters() -> None:
    with pytest.raises(ConfigError, match="d_model = 100 must be a multiple of 3, the number of widths"):
        TextCNNConfig.parse({"d_model": 100}, "[model]")
