import pytest
import torch
from torch import nn

from clearformer.training.average import Average


def test_update_by_hand():
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 2.0)
    average = Average(model, decay=0.5)
    expected = 2.0
    for step, value in enumerate([3.0, -1.0, 7.0, 4.0, 0.5, 6.0, 2.5, 8.0, 1.0], 1):
        nn.init.constant_(model.weight, value)
        average.set_step(step)
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
        assert average.weights["weight"].item() == pytest.approx(expected, rel=1e-12)
    assert (1 + 9) / (10 + 9) > 0.5  # the last steps met the decay itself


def test_swap_is_undone_bit_for_bit_even_by_an_error():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    model[1].weight = nn.Parameter(torch.randn(2, 5))
    average = Average(model, 0.9)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    average.set_step(1)
    average.update()
    own = {name: p.detach().clone() for name, p in model.named_parameters()}
    places = [p.data_ptr() for p in model.parameters()]
    with average.swapped_in(model):
        assert all(torch.equal(p, average.weights[name]) for name, p in model.named_parameters())
    with pytest.raises(RuntimeError), average.swapped_in(model):
        model(torch.zeros(3, 11))
    assert all(torch.equal(p, own[name]) for name, p in model.named_parameters())
    assert [p.data_ptr() for p in model.parameters()] == places


def test_tied_weights_are_averaged_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert list(Average(model, 0.9).weights) == ["0.weight"]
