"""Every form of autoencoder, at sizes that do not halve evenly; and the linear one, which is PCA."""

from typing import Any

import pytest
import torch

from clearformer.data.batch import ImageBatch
from clearformer.layers.pca import fit_pca
from clearformer.models.autoencoder import Autoencoder, AutoencoderConfig
from clearformer.objectives.reconstruction import Reconstruction, ReconstructionConfig, kl

B, C, N, D = 5, 2, 13, 3
FORMS: list[dict[str, Any]] = [
    {"form": "dense", "widths": ()},
    {"form": "dense", "widths": (17, 11)},
    {"form": "conv", "widths": (7,)},
    {"form": "conv", "widths": (7, 5, 11)},
]


def build(**changes: Any) -> Autoencoder:
    torch.manual_seed(0)
    return Autoencoder(AutoencoderConfig(**{"channels": C, "size": N, "d_code": D, **changes}))


@pytest.mark.parametrize("code", ["point", "gaussian"])
@pytest.mark.parametrize("form", FORMS)
def test_a_picture_comes_back_in_its_shape(form: dict[str, Any], code: Any) -> None:
    model, batch = build(**form, code=code), ImageBatch(torch.randn(B, C, N, N))
    assert model.hidden(batch).shape == (B, D)
    assert model(batch).shape == (B, C, N, N)
    Reconstruction(ReconstructionConfig())(model, batch).total.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    mean, log_variance = model.code(batch)
    assert mean.equal(model.hidden(batch))
    assert (log_variance is None) == (code == "point")


def test_maps_halve_and_grow_back() -> None:
    model = build(widths=(7, 5, 11))
    sizes: list[int] = []
    for layer in (*model.encoder, *model.decoder):
        layer.register_forward_hook(lambda module, inputs, output: sizes.append(output.size(-1)))
    model(ImageBatch(torch.randn(B, C, N, N)))
    assert sizes == [7, 4, 2, 44, 2, 2, 4, 4, 4, 7, 7, 7, 13, 13]  # 44 = 11 · 2², flat


def test_the_loss_is_the_equation() -> None:
    model, pixels = build(form="dense", widths=(17,)).double(), torch.randn(B, C, N, N).double()
    loss = Reconstruction(ReconstructionConfig())(model, ImageBatch(pixels))
    assert loss.n_tokens == B
    torch.testing.assert_close(loss.total, (model(ImageBatch(pixels)) - pixels).square().sum())


def test_the_divergence_is_torchs() -> None:
    mean, log_variance = torch.randn(2, B, D, dtype=torch.float64)
    normal = torch.distributions.Normal
    theirs = torch.distributions.kl_divergence(normal(mean, (log_variance / 2).exp()), normal(0.0, 1.0)).sum()
    torch.testing.assert_close(kl(mean, log_variance), theirs)
    assert kl(torch.zeros(B, D), torch.zeros(B, D)) == 0


def test_beta_weighs_it_and_codes_are_drawn() -> None:
    model, batch = build(code="gaussian").double(), ImageBatch(torch.randn(B, C, N, N).double())
    found = []
    for beta in (0.0, 1.0, 3.0):
        torch.manual_seed(1)
        found.append(Reconstruction(ReconstructionConfig(beta=beta))(model, batch).total)
    divergence = kl(*model.code(batch))  # type: ignore[arg-type]
    torch.testing.assert_close(found[1] - found[0], divergence)  # a small difference of large sums
    torch.testing.assert_close(found[2] - found[0], 3 * divergence)
    again = Reconstruction(ReconstructionConfig(beta=0))(model, batch).total
    assert not again.equal(found[0])  # another draw
    assert model(batch).equal(model(batch))  # in use, the mean


def test_noise_is_added_to_what_is_seen_and_not_to_what_is_asked_for() -> None:
    """A network that gives back what it sees is wrong by the noise: s² a pixel."""
    model = build(form="dense", widths=(), d_code=C * N * N)
    with torch.no_grad():
        for layer in (model.to_code, model.from_code):
            layer.weight.copy_(torch.eye(C * N * N))
            layer.bias.zero_()
    batch = ImageBatch(torch.randn(101, C, N, N))
    assert Reconstruction(ReconstructionConfig())(model, batch).total < 1e-6
    noisy = Reconstruction(ReconstructionConfig(noise=0.7))(model, batch).total / batch.pixels.numel()
    assert noisy.item() == pytest.approx(0.49, rel=0.05)


def test_a_linear_one_finds_the_subspace_of_pca() -> None:
    """Baldi & Hornik 1989: no local minima, and at the bottom the span of the first D components and their error."""
    generator = torch.Generator().manual_seed(0)
    spreads = torch.cat([torch.tensor([5.0, 4.0, 3.0]), torch.linspace(1, 0.3, 22)]).double()
    turn = torch.linalg.qr(torch.randn(25, 25, generator=generator, dtype=torch.float64)).Q
    points = torch.randn(97, 25, generator=generator, dtype=torch.float64) * spreads @ turn + 1
    model, batch = build(form="dense", widths=(), channels=1, size=5).double(), ImageBatch(points.view(-1, 1, 5, 5))
    objective, pca = Reconstruction(ReconstructionConfig()), fit_pca(points, D)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2000, line_search_fn="strong_wolfe", tolerance_change=0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = objective(model, batch).total
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    least = (pca.reconstruct(pca.transform(points)) - points).square().sum()
    torch.testing.assert_close(objective(model, batch).total, least, rtol=1e-6, atol=0)
    spanned = torch.linalg.qr(model.from_code.weight.detach()).Q  # (25, D)
    cosines = torch.linalg.svdvals(pca.components @ spanned)  # of the principal angles between the two
    assert (1 - cosines).abs().max() < 1e-6
