"""Learning-rate schedules, and whether SGD is guaranteed to converge with them.

    Σ ε_k = ∞  and  Σ ε_k² < ∞        Robbins & Monro 1951: far enough to reach any point, with vanishing noise

Whether a sum is infinite is tested far beyond the end of a run. In an infinite sum, the steps k + 1 … 2k add about as
much as the steps k/2 + 1 … k, or more; in a finite sum, they add less.
"""

from itertools import accumulate
from typing import Any, get_args

from clearformer.training.schedules import ScheduleConfig
from clearformer.wording import count, listed

STEPS, WARMUP, FLOOR = 1000, 100, 0.1
FAR = 2**17  # the last step of the sums
KINDS = get_args(ScheduleConfig.model_fields["kind"].annotation)


def follow() -> dict[str, Any]:
    """Return the data that `clearformer plot schedules` shows, for each schedule."""
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
    title = f"Σ ε_k is infinite and Σ ε_k² finite for {len(good)} of {count(len(lines), 'schedule')}: {listed(good)}"
    return {"title": title, "steps": STEPS, "warmup": WARMUP, "floor": FLOOR, "marks": marks, "schedules": lines}


def is_infinite(sums: list[float]) -> bool:
    quarter, half, whole = (sums[FAR // part - 1] for part in (4, 2, 1))
    return whole - half > 0.9 * (half - quarter) > 0
