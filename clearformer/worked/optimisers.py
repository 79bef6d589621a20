"""Update rules by numbers: where the notes' rules and torch's agree, and where they do not."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from clearformer.training.optim import OptimConfig
from clearformer.training.schedules import ScheduleConfig
from clearformer.worked.example import Figure, worked

COURSE = "deep-learning course"


class Number(nn.Module):
    """A single parameter θ."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(value, dtype=torch.float64))


def updates(settings: OptimConfig, gradients: list[float]) -> list[float]:
    """Return the change of θ in each step, for gradients that are given."""
    model, steps = Number(), []
    optimizer = settings.build(model)
    for gradient in gradients:
        before = model.theta.item()
        model.theta.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        steps.append(model.theta.item() - before)
    return steps


@worked("momentum", "v ← αv − εg on a steady slope", f"{COURSE}, 10/03, l.224-236", OptimConfig.build)
def momentum() -> Iterator[Figure]:
    here = updates(OptimConfig(kind="momentum", lr=0.1, momentum=0.5), [1.0] * 3)
    v = [-0.1, -0.15, -0.175]
    yield Figure("the first three updates", here, [0.5 * step for step in v], v, "θ moves by v, not by αv")


@worked("adam", "Adam's bias correction on a steady slope", f"{COURSE}, 10/03, l.333-347", OptimConfig.build)
def adam() -> Iterator[Figure]:
    """Every update is −lr, whatever the gradient; divided by 1 − β instead of 1 − β^t, the tenth is 2.06 of it."""
    step = updates(OptimConfig(kind="adam", lr=0.1, betas=(0.9, 0.999)), [3.0] * 10)[9]
    wrong = -0.1 * (1 - 0.9**10) / 0.1 / math.sqrt((1 - 0.999**10) / 0.001)
    yield Figure("the tenth update", step, wrong, -0.1, "the moments are divided by 1 − β^t, not by 1 − β")


@worked("rmsprop", "the past fades by powers of β", f"{COURSE}, 10/03, l.311-331", OptimConfig.build)
def rmsprop() -> Iterator[Figure]:
    """s_3 of the squares 1, 4, 9: the notes' weights β²(1−β), β(1−β), 1−β; their recursion keeps sums instead."""
    squares, beta = [1.0, 4.0, 9.0], 0.9
    s = sum((1 - beta) * beta ** (2 - k) * square for k, square in enumerate(squares))
    here = updates(OptimConfig(kind="rmsprop", lr=0.1, rho=beta, eps=1e-12), [1.0, 2.0, 3.0])[2]
    yield Figure("the third update, from the weights", here, -0.1 * 3 / math.sqrt(s))
    sums = sum((1 - beta) * beta ** (2 - k) * total for k, total in enumerate((1.0, 5.0, 14.0)))
    slip = "the average is of the squares g², not of their running sums, which never fade"
    yield Figure("the third update, from s_t = Σ g∘g", here, -0.1 * 3 / math.sqrt(sums), -0.1 * 3 / math.sqrt(s), slip)


@worked("schedule", "ε_k = (1 − α) ε_0 + α ε_T with α = k / T", f"{COURSE}, 09/03, l.107-132", ScheduleConfig.factor)
def schedule() -> Iterator[Figure]:
    """ε_0 = 0.1 and ε_T = 0.001 after T = 100 steps."""
    linear = ScheduleConfig(kind="linear", warmup=0, floor=0.01)
    for k in (1, 50, 100):
        alpha = k / 100
        yield Figure(f"ε_{k}", 0.1 * linear.factor(k, 100), (1 - alpha) * 0.1 + alpha * 0.001)


@worked("one-instance", "SGD: the loss of one instance, J / N", f"{COURSE}, before 09/03, l.80-84", OptimConfig.build)
def one_instance() -> Iterator[Figure]:
    """Four instances with gradients 1, 2, 3, 6: the mean update of SGD is the update of gradient descent."""
    gradients = [1.0, 2.0, 3.0, 6.0]
    sgd = OptimConfig(kind="sgd", lr=0.1)
    steps = updates(sgd, gradients)
    [whole] = updates(sgd, [sum(gradients) / 4])
    slip = "J is not divided by N: the mean over instances is the gradient already"
    yield Figure("mean update", sum(steps) / 4, whole / 4, whole, slip)
