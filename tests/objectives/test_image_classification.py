"""The loss by hand, what training does to images, and answers besides the first."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.image_classification import ImageClassification, ImageClassificationConfig

B, C, SIZE, K = 5, 3, 7, 11


class Flat(nn.Module):
    """Scores are a linear map of the pixels, which it keeps; all in float64."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = SimpleNamespace(n_classes=K)
        self.classifier = nn.Linear(C * SIZE * SIZE, K).double()

    def hidden(self, batch: ImageBatch) -> Tensor:
        self.seen = batch.pixels
        return batch.pixels.flatten(1)

    def head(self, hidden: Tensor) -> Tensor:
        return self.classifier(hidden)


class Talkative(Flat):
    def answers(self, batch: ImageBatch) -> list[Tensor]:
        scores = self.head(self.hidden(batch))
        return [scores, 2 * scores, 3 * scores]


@pytest.fixture
def batch() -> ImageBatch:
    torch.manual_seed(1)
    return ImageBatch(torch.randint(256, (B, C, SIZE, SIZE), dtype=torch.uint8), torch.tensor([0, 3, 10, 3, 7]))


def image(**augment: float) -> ImageConfig:
    return ImageConfig(mean=(0.1, 0.2, 0.3), std=(0.5, 0.4, 0.3), augment=augment)


def normalised(batch: ImageBatch) -> Tensor:
    return image().normalise(batch.pixels, torch.float64)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_loss_by_hand(batch: ImageBatch, epsilon: float) -> None:
    model, config = Flat(), ImageClassificationConfig(label_smoothing=epsilon)
    loss = ImageClassification(config, image())(model, batch)
    logs = model.classifier(normalised(batch).flatten(1)).log_softmax(-1)
    expected = -sum((1 - epsilon) * logs[i, k] + epsilon * logs[i].mean() for i, k in enumerate(batch.classes))
    torch.testing.assert_close(loss.total, expected)
    assert loss.n_tokens == B


def test_float_pixels_are_read_as_they_are(batch: ImageBatch) -> None:
    model, pixels = Flat(), torch.randn(B, C, SIZE, SIZE, dtype=torch.float64)
    ImageClassification(ImageClassificationConfig())(model, ImageBatch(pixels, batch.classes))
    assert model.seen is pixels


def test_only_training_augments(batch: ImageBatch) -> None:
    objective, model = ImageClassification(ImageClassificationConfig(), image(erase=1.0, mixup=1.0)), Flat()
    plain = normalised(batch)
    objective(model.eval(), batch)
    assert model.seen.equal(plain)
    objective(model.train(), batch)
    assert not model.seen.isclose(plain).all()


def test_mixup_has_two_answers(batch: ImageBatch) -> None:
    """The loss of a mixture is the mixture of the losses."""
    objective, model = ImageClassification(ImageClassificationConfig(), image(mixup=0.7)), Flat()
    torch.manual_seed(3)
    loss = objective(model, batch)
    plain, seen = normalised(batch), model.seen
    scores = model.classifier(seen.flatten(1))
    expected = torch.zeros(()).double()
    for i in range(B):
        mixes = [  # λ, by least squares, and what is left over, if the partner is j
            (lam, F.mse_loss(lam * plain[i] + (1 - lam) * plain[j], seen[i]), j)
            for j in range(B)
            for lam in [share(plain[i], plain[j], seen[i])]
        ]
        lam, left, j = min(mixes, key=lambda mix: mix[1])
        assert left < 1e-20
        losses = F.cross_entropy(scores[i].expand(2, -1), batch.classes[[i, j]], reduction="none")
        expected = expected + lam * losses[0] + (1 - lam) * losses[1]
    torch.testing.assert_close(loss.total, expected)


def share(a: Tensor, b: Tensor, mixed: Tensor) -> Tensor:
    """λ of λ a + (1 − λ) b."""
    apart = (a - b).flatten()
    return (mixed - b).flatten() @ apart / (apart @ apart).clamp(min=1e-9)


def test_further_answers_count_for_less(batch: ImageBatch) -> None:
    model = Talkative()
    loss = ImageClassification(ImageClassificationConfig(), image())(model, batch).total
    scores = model.classifier(normalised(batch).flatten(1))
    each = [F.cross_entropy(n * scores, batch.classes, reduction="sum") for n in (1, 2, 3)]
    torch.testing.assert_close(loss, each[0] + 0.3 * (each[1] + each[2]))
    used = ImageClassification(ImageClassificationConfig(), image())(model.eval(), batch).total
    torch.testing.assert_close(used, each[0])


def test_an_image_has_the_weight_of_its_class(batch: ImageBatch) -> None:
    model, weights = Talkative(), tuple(float(k + 1) for k in range(K))
    loss = ImageClassification(ImageClassificationConfig(weights=weights, label_smoothing=0.1), image())(model, batch)
    scores = model.classifier(normalised(batch).flatten(1))
    each = [F.cross_entropy(n * scores, batch.classes, reduction="none", label_smoothing=0.1) for n in (1, 2, 3)]
    torch.testing.assert_close(loss.total, ((batch.classes + 1) * (each[0] + 0.3 * (each[1] + each[2]))).sum())
    assert loss.n_tokens == B
