"""The recorded costs of the lens and the studio, and the recorded claims about heads, keep what was promised."""

import json
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def recorded(name: str, path: str) -> Any:
    value = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    for key in path.split("."):
        value = value[key]
    return value


@pytest.mark.parametrize(
    ("name", "path", "most"),
    [
        ("lens-cost", "head_overhead_percent", 2),  # one head of Transformer-base at 512 tokens
        ("induction", "most_removed_by_other_heads", 0.1),  # the worst of three seeds
        ("studio", "redraw_ms.worst", 100),
        ("studio", "first_paint_ms.worst", 1000),
        ("studio-watch", "cost_percent", 3),
    ],
)
def test_a_recorded_cost_is_at_most_what_was_promised(name: str, path: str, most: float) -> None:
    assert recorded(name, path) <= most


def test_the_recorded_conditions_are_those_of_the_promise() -> None:
    assert recorded("lens-cost", "length") == 512
    assert (recorded("studio", "cores"), recorded("studio-watch", "cores")) == (2, 2)
    assert (recorded("studio", "source_tokens"), recorded("studio", "target_tokens")) == (128, 128)
    assert len(recorded("induction", "seeds")) == 3
    assert recorded("induction", "least_removed_by_induction_heads") >= 0.9
    aligned, others = (recorded("alignment-heads", f"bleu_without_{which}_heads") for which in ("alignment", "other"))
    assert aligned < others < recorded("alignment-heads", "bleu")
