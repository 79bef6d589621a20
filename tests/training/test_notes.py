"""Where the notes' update rules slip, computed: each test holds the rule as written beside the one that works."""

import math

import pytest
import torch
from torch import nn

from clearformer.training.optim import OptimConfig

LR, MU = 0.1, 0.7


def gradient(theta: float) -> float:
    return 3 * theta**2 - 1  # of θ³ − θ


class Number(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(value, dtype=torch.float64))


def followed(rule: OptimConfig, start: float, steps: int) -> list[float]:
    """θ after each step of what the project trains with."""
    model, path = Number(start), []
    optimizer = rule.build(model)
    for _ in range(steps):
        model.theta.grad = 3 * model.theta.detach() ** 2 - 1
        optimizer.step()
        path.append(model.theta.item())
    return path


def test_one_instance_of_n_is_not_divided_by_n() -> None:
    """With J_r / N the expected update is N times too small: the mean of ∇J_r is already the gradient of the loss."""
    torch.manual_seed(2)
    N, theta = 7, torch.randn(3, dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(N, 3, dtype=torch.float64), torch.randn(N, dtype=torch.float64)
    [whole] = torch.autograd.grad(((x @ theta - y) ** 2).mean(), theta)
    ones = torch.stack([torch.autograd.grad((x[r] @ theta - y[r]) ** 2, theta)[0] for r in range(N)])
    torch.testing.assert_close(ones.mean(dim=0), whole)
    torch.testing.assert_close((ones / N).mean(dim=0), whole / N)


def test_the_velocity_is_added_whole() -> None:
    """v = αv − εg has the α already: on a steady slope steps grow to ε / (1 − α). θ + αv makes them α times that."""
    model, v, slipped = Number(0.0), 0.0, 0.0
    optimizer = OptimConfig(kind="momentum", lr=LR, momentum=MU).build(model)
    model.theta.grad = torch.ones_like(model.theta)
    for _ in range(100):
        before = model.theta.item()
        optimizer.step()
        v = MU * v - LR
        slipped += MU * v
        assert model.theta.item() - before == pytest.approx(v, rel=1e-9)
    assert v == pytest.approx(-LR / (1 - MU))
    assert slipped / model.theta.item() == pytest.approx(MU)


def test_nesterov_looks_ahead_from_where_it_stands() -> None:
    """θ~ = θ + αv, not the last θ~ + αv. torch keeps θ~ in place of θ, and walks the same way."""
    theta, v = 0.9, 0.0
    for ahead in [0.9, *followed(OptimConfig(kind="nesterov", lr=LR, momentum=MU), 0.9, 6)]:
        assert theta + MU * v == pytest.approx(ahead, rel=1e-12)
        v = MU * v - LR * gradient(theta + MU * v)
        theta += v
    slipped = [0.9]
    theta, v = 0.9, 0.0
    for _ in range(6):
        slipped.append(slipped[-1] + MU * v)
        v = MU * v - LR * gradient(slipped[-1])
        theta += v
    assert abs(slipped[-1] - theta - MU * v) > 0.1  # it looks from a place where it never was


def test_rmsprop_averages_squares_not_their_sums() -> None:
    """After a steep start the average of squares forgets; that of their sums, as the notes write it, never does."""
    beta, total, sums, squares = 0.9, 0.0, 0.0, 0.0
    for g in [100.0] * 5 + [0.01] * 500:
        total += g * g
        sums, squares = beta * sums + (1 - beta) * total, beta * squares + (1 - beta) * g * g
    assert math.sqrt(squares) == pytest.approx(0.01)
    assert math.sqrt(sums) == pytest.approx(100 * math.sqrt(5))


@pytest.mark.parametrize(("t", "times"), [(1, 1.0), (10, 2.06), (100, 1.025), (100_000, 0.316)])
def test_bias_correction_needs_the_power_t(t: int, times: float) -> None:
    """The weights of t terms sum to 1 − β^t. On a steady slope Adam's steps are ε; divided by 1 − β they are not."""
    b1, b2 = 0.9, 0.999
    assert sum((1 - b1) * b1 ** (t - k) for k in range(1, t + 1)) == pytest.approx(1 - b1**t)
    m, v = 1 - b1**t, 1 - b2**t  # the moments of a gradient that is always 1
    assert (m / (1 - b1**t)) / math.sqrt(v / (1 - b2**t)) == 1
    assert (m / (1 - b1)) / math.sqrt(v / (1 - b2)) == pytest.approx(times, rel=3e-3)


def test_epsilon_stands_outside_the_root() -> None:
    """Inside it, as the notes have it, 1e-8 outweighs a gradient of 1e-4; after it, 1e-8 is nothing beside one."""
    model, g = Number(0.0), 1e-4
    optimizer = OptimConfig(kind="adagrad", lr=LR, eps=1e-8).build(model)
    model.theta.grad = torch.tensor(g, dtype=torch.float64)
    optimizer.step()
    assert -model.theta.item() == pytest.approx(LR * g / (math.sqrt(g**2) + 1e-8), rel=1e-12)
    assert LR * g / math.sqrt(g**2 + 1e-8) == pytest.approx(LR / math.sqrt(2))


def test_adagrads_steps_die_out_on_an_endless_slope() -> None:
    """The t-th step is lr / √t: after 2,500 steps a fiftieth, with no minimum anywhere. Adam's stays lr."""
    sizes = {}
    for kind in ("adagrad", "adam"):
        model, before = Number(0.0), 0.0
        optimizer = OptimConfig(kind=kind, lr=LR, eps=1e-12).build(model)
        model.theta.grad = torch.ones_like(model.theta)
        for _ in range(2500):
            before = model.theta.item()
            optimizer.step()
        sizes[kind] = before - model.theta.item()
    assert sizes["adagrad"] == pytest.approx(LR / math.sqrt(2500), rel=1e-9)
    assert sizes["adam"] == pytest.approx(LR, rel=1e-9)


def test_rmsprop_needs_an_epsilon() -> None:
    """As the notes write it, a weight whose gradient is 0 from the start moves by 0 / √0."""
    model = Number(1.0)
    optimizer = OptimConfig(kind="rmsprop", lr=LR).build(model)
    model.theta.grad = torch.zeros_like(model.theta)
    optimizer.step()
    assert model.theta.item() == 1.0
    assert math.isnan((torch.zeros(()) / torch.zeros(()).sqrt()).item())
