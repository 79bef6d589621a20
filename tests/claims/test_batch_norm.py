import pytest
import torch
from torch import nn

from clearformer.claims import batch_norm


@pytest.fixture(scope="module")
def numbers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_norm, "STEPS", 40)
        return batch_norm.train(seed=1)


def test_sigmoids_let_no_gradient_through(numbers) -> None:
    """At most ¼ a layer; with the norms, and with relu, the first layer feels about as much as the last."""
    first, last = (numbers["runs"]["sigmoid"]["slope"][i] for i in (0, -1))
    assert first < last * 0.25 ** (batch_norm.DEPTH - 2)
    for name in ("relu", "relu with batch norm", "tanh", "tanh with batch norm", "sigmoid with batch norm"):
        first, last = (numbers["runs"][name]["slope"][i] for i in (0, -1))
        assert first > last / 30


def test_norms_learn_sooner(numbers) -> None:
    ends = {name: sum(run["loss"][-10:]) / 10 for name, run in numbers["runs"].items()}
    assert ends["relu with batch norm"] < ends["relu"] < ends["sigmoid"]
    assert ends["sigmoid with batch norm"] < ends["sigmoid"]
    assert ends["sigmoid"] == pytest.approx(numbers["chance"], abs=0.1)
    assert f"{ends['sigmoid']:.2f} without" in numbers["title"]


def test_a_grating_is_the_equation() -> None:
    """Class 0 runs along x: without noise, every row would be the same."""
    images, classes = batch_norm.gratings(2000, torch.Generator().manual_seed(0))
    assert images.shape == (2000, 1, batch_norm.N, batch_norm.N)
    assert set(classes.tolist()) == set(range(batch_norm.CLASSES))
    along, across = (images[classes == k].var(2).mean().item() for k in (0, batch_norm.CLASSES // 2))
    assert along == pytest.approx(0.3**2, rel=0.05)
    assert across > 0.4


def test_layers_are_what_is_said() -> None:
    kinds = [type(layer) for layer in batch_norm.build("tanh", has_norm=True)]
    assert kinds[:3] == [nn.Conv2d, nn.BatchNorm2d, nn.Tanh]
    assert kinds.count(nn.Conv2d) == batch_norm.DEPTH
    assert nn.BatchNorm2d not in [type(layer) for layer in batch_norm.build("tanh", has_norm=False)]
