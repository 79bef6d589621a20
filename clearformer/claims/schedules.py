"""The learning rate along a training, and whether SGD must converge under it.

    Σ ε_k = ∞  and  Σ ε_k² < ∞        Robbins & Monro 1951: far enough to reach any point, and quiet in the end

Far beyond the training's end, an octave of steps, k + 1 … 2k, adds about as much to an infinite sum as the octave
before it, or more; to a finite one, less.
"""

from itertools import accumulate
from typing import Any, get_args

from clearformer.training.schedules import ScheduleConfig

STEPS, WARMUP, FLOOR = 1000, 100, 0.1
FAR = 2**17  # the last step that is looked at
KINDS = get_args(ScheduleConfig.model_fields["kind"].annotation)


def follow() -> dict[str, Any]:
    """Every schedule by name: the numbers that `clearformer plot schedules` draws."""
    marks = [2**i for i in range(5, FAR.bit_length())]
    lines = {}
    for kind in KINDS:
        schedule = ScheduleConfig(kind=kind, warmup=WARMUP, floor=FLOOR, half=WARMUP, stair=WARMUP)
        rates = [schedule.factor(k, STEPS) for k in range(1, FAR + 1)]
        sums, squares = list(accumulate(rates)), list(accumulate(rate**2 for rate in rates))
        lines[kind] = {
            "rate": rates[:STEPS],
            "sum": [sums[k - 1] for k in marks],
            "sum_of_squares": [squares[k - 1] for k in marks],
            "sum_is_infinite": is_infinite(sums),
            "squares_are_finite": not is_infinite(squares),
        }
    good = [kind for kind, line in lines.items() if line["sum_is_infinite"] and line["squares_are_finite"]]
    title = f"Rates that sum to infinity, squares that do not: of {len(lines)} schedules, {' and '.join(good)} has both"
    return {"title": title, "steps": STEPS, "warmup": WARMUP, "floor": FLOOR, "marks": marks, "schedules": lines}


def is_infinite(sums: list[float]) -> bool:
    quarter, half, whole = (sums[FAR // part - 1] for part in (4, 2, 1))
    return whole - half > 0.9 * (half - quarter) > 0
