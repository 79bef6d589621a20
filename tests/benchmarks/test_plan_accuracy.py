"""benchmarks/plan_accuracy.py: what it keeps of a result file, and what it compares."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def benchmark() -> ModuleType:
    return import_module("plan_accuracy")


def test_models_that_are_not_measured_again_stay(benchmark: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "accuracy.json"
    one, two = {"commit": "a1", "date": "2026-01-01"}, {"commit": "b2", "date": "2026-02-02"}
    first = benchmark.merged(out, {"vit": {"measured_mb": 1}, "gpt": {"measured_mb": 2}}, one)
    assert list(first) == ["gpt", "vit"]
    out.write_text(json.dumps({"models": first, **one}))
    second = benchmark.merged(out, {"gpt": {"measured_mb": 3}, "bert": {"measured_mb": 4}}, two)
    assert second == {
        "gpt": {"measured_mb": 3, **two},
        "bert": {"measured_mb": 4, **two},
        "vit": {"measured_mb": 1, **one},
    }


def test_the_plan_is_compared_with_the_most_of_all_trainings(benchmark: ModuleType) -> None:
    plan = {"peak_mb": 1600.0, "memory_mb": {"process": 500.0, "allocator": 100.0, "weights": 1000.0}}
    trainings = [{"mb": 1000.0, "peak_mb": 1500.0}, {"mb": 880.0, "peak_mb": 1280.0}]
    assert benchmark.memory(plan, trainings) == {
        "planned_peak_mb": 1600.0,
        "peak_mb": 1500.0,
        "peak_error": 0.067,
        "planned_mb": 1100.0,
        "measured_mb": 1000.0,
        "memory_error": 0.1,
        "trainings_mb": [1000.0, 880.0],
    }


def test_on_a_gpu_the_plan_is_compared_with_tensors_and_with_what_the_allocator_takes(benchmark: ModuleType) -> None:
    plan = {"peak_mb": 1600.0, "memory_mb": {"process": 500.0, "allocator": 100.0, "weights": 1000.0}}
    assert benchmark.memory(plan, [{"mb": 1000.0, "peak_mb": 900.0, "reserved_mb": 1250.0}]) == {
        "planned_mb": 1000.0,
        "measured_mb": 1000.0,
        "memory_error": 0.0,
        "planned_reserved_mb": 1100.0,
        "reserved_mb": 1250.0,
        "reserved_error": -0.12,
    }
