from typing import Any

import pytest

from clearformer.comparison.page import cells, page
from clearformer.metric import BLEU
from clearformer.verbs.compare import REPORT_KEYS, table


def results_of(*scores: float) -> dict[str, Any]:
    every = dict.fromkeys(("count", "per_second", *REPORT_KEYS), 7.0) | {"reached": None}
    runs = {"a": [{"seed": seed, "score": score, **every} for seed, score in enumerate(scores)]}
    return {"title": "t", "metric": "bleu", "unit": "tokens", "goal": None, "runs": runs, "table": table(runs, BLEU)}


@pytest.mark.parametrize(
    ("scores", "spread", "told"),
    [((31.0,), {}, "Seed 0."), ((31.0, 33.0), {"± sd": "1.4"}, "Means over seeds 0 and 1.")],
)
def test_only_several_seeds_have_a_spread(scores: tuple[float, ...], spread: dict[str, str], told: str) -> None:
    results = results_of(*scores)
    header, row = cells(results)
    score = {"": "a", "bleu": f"{sum(scores) / len(scores):.4g}"}
    assert dict(zip(header, row)) == score | spread | dict.fromkeys(
        ("parameters", "tokens/s", "memory, MB", "seconds"), "7"
    )
    assert f"<p>{told} The time" in page(results, "<svg></svg>", "")
