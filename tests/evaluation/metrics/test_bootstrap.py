"""Paired bootstrap against sacrebleu, whose test it is, and in cases whose result is known."""

import numpy as np
import pytest

from clearformer.evaluation.metrics.bootstrap import SAMPLES, paired_p_value, sacrebleu_p_values

N = 97
RNG = np.random.default_rng(1)
EDITS, WORDS = RNG.integers(0, 9, N), RNG.integers(5, 20, N)


def test_the_same_system_twice_differs_only_by_chance() -> None:
    """All samples have the difference 0, which is not above 0: only the 1 that is added remains."""
    rows = np.stack([EDITS, WORDS], 1).astype(float)
    assert paired_p_value(rows, rows) == 1 / (SAMPLES + 1)


def test_a_clear_difference_is_significant_and_a_small_one_is_not() -> None:
    rows = np.stack([EDITS, WORDS], 1).astype(float)
    worse, noisy = rows + np.array([3, 0]), rows + np.stack([RNG.choice([-2, 2], N), np.zeros(N)], 1)
    assert paired_p_value(worse, rows) < 0.01
    assert paired_p_value(noisy, rows) > 0.05
    assert paired_p_value(rows, noisy) == paired_p_value(noisy, rows)


def test_the_p_value_of_sacrebleu() -> None:
    """TER without shifts is a ratio of sums, of edits and of words, so both can compute it."""
    from sacrebleu.metrics import TER

    words = [f"w{k}" for k in range(40)]
    draw = np.random.default_rng(4)
    references = [" ".join(draw.choice(words, 9, replace=False)) for _ in range(60)]

    def damage(line: str, rate: float) -> str:
        return " ".join(f"x{i}" if draw.random() < rate else word for i, word in enumerate(line.split()))

    systems = {"a": [damage(line, 0.3) for line in references], "b": [damage(line, 0.4) for line in references]}
    (theirs,) = sacrebleu_p_values(systems, [references], {"ter": TER()})
    rows = {
        name: np.array([[sum(a != b for a, b in zip(h.split(), r.split())), 9.0] for h, r in zip(lines, references)])
        for name, lines in systems.items()
    }
    assert paired_p_value(rows["b"], rows["a"]) == pytest.approx(theirs["ter"], abs=2 / SAMPLES)
