"""torch.optim is what runs; here each rule of the notes is written out for one number, and followed."""

import math

import pytest
import torch
from torch import nn

from clearformer.errors import ConfigError
from clearformer.training.optim import OptimConfig, load_state, set_rate, state_of

LR, MU, RHO, B1, B2, EPS, DECAY = 0.1, 0.7, 0.9, 0.8, 0.95, 1e-3, 0.3


def gradient(theta: float) -> float:
    return 3 * theta**2 - 1  # of θ³ − θ


def sgd():
    def rule(theta, g, t):
        return theta - LR * g

    return rule


def momentum():
    v = 0.0

    def rule(theta, g, t):
        nonlocal v
        v = MU * v + g
        return theta - LR * v

    return rule


def nesterov():
    v = 0.0

    def rule(theta, g, t):
        nonlocal v
        v = MU * v + g
        return theta - LR * (g + MU * v)

    return rule


def adagrad():
    r = 0.0

    def rule(theta, g, t):
        nonlocal r
        r += g * g
        return theta - LR * g / (math.sqrt(r) + EPS)

    return rule


def rmsprop():
    r = 0.0

    def rule(theta, g, t):
        nonlocal r
        r = RHO * r + (1 - RHO) * g * g
        return theta - LR * g / (math.sqrt(r) + EPS)

    return rule


def adam():
    m = v = 0.0

    def rule(theta, g, t):
        nonlocal m, v
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
        return theta - LR * (m / (1 - B1**t)) / (math.sqrt(v / (1 - B2**t)) + EPS)

    return rule


RULES = {"gd": sgd, "sgd": sgd, "momentum": momentum, "nesterov": nesterov}
RULES |= {"adagrad": adagrad, "rmsprop": rmsprop, "adam": adam, "adamw": adam}


class Number(nn.Module):
    def __init__(self, value: float, shape: tuple[int, ...] = (1, 1)) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.full(shape, value, dtype=torch.float64))


def config(kind: str, **more) -> OptimConfig:
    return OptimConfig(kind=kind, lr=LR, momentum=MU, rho=RHO, betas=(B1, B2), eps=EPS, **more)


@pytest.mark.parametrize("kind", RULES)
def test_rule_step_by_step(kind):
    model, rule, theta = Number(0.9), RULES[kind](), 0.9
    optimizer = config(kind).build(model)
    for t in range(1, 12):
        model.theta.grad = 3 * model.theta.detach() ** 2 - 1
        theta = rule(theta, gradient(theta), t)
        optimizer.step()
        assert model.theta.item() == pytest.approx(theta, rel=1e-12)


def test_adamw_decays_apart_from_the_gradient():
    model = Number(2.0)
    optimizer = config("adamw", weight_decay=DECAY).build(model)
    model.theta.grad = torch.zeros_like(model.theta)
    optimizer.step()
    assert model.theta.item() == pytest.approx(2.0 * (1 - LR * DECAY))


def test_vectors_do_not_decay():
    model = Number(2.0, shape=(3,))
    optimizer = config("adamw", weight_decay=DECAY).build(model)
    model.theta.grad = torch.zeros_like(model.theta)
    optimizer.step()
    assert model.theta.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ({"betas": (0.9, 1.0)}, r"betas\[1\] = 1\.0"),
        ({"betas": (-0.1, 0.9)}, r"betas\[0\] = -0\.1"),
        ({"momentum": 1.0}, "momentum = "),
        ({"rho": 1.5}, "rho = "),
        ({"kind": "nesterov", "momentum": 0.0}, "needs a momentum greater than 0"),
    ],
)
def test_settings_that_torch_would_refuse_later_are_refused_at_once(field, complaint):
    with pytest.raises(ConfigError, match=complaint):
        OptimConfig.parse(field, "x.toml: [optim]")


@pytest.mark.parametrize("kind", RULES)
def test_state_travels_by_name(kind):
    """Five steps, then the state into a new optimiser, then five more: as ten in a row."""
    straight, broken = Number(0.9), Number(0.9)
    one, two = config(kind).build(straight), config(kind).build(broken)
    for t in range(10):
        if t == 5:
            tensors = {name: tensor.clone() for name, tensor in state_of(two, broken).items()}
            two = config(kind).build(broken)
            load_state(two, broken, tensors)
        for model, optimizer in ((straight, one), (broken, two)):
            model.theta.grad = 3 * model.theta.detach() ** 2 - 1
            set_rate(optimizer, LR / (t + 1))
            optimizer.step()
    assert torch.equal(straight.theta, broken.theta)
    assert all(name.endswith(".theta") for name in state_of(one, straight))
