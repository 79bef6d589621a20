import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clearformer.verbs.doctor import describe, describe_device, doctor


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return doctor()


def lines_about(word: str, report: dict[str, Any]) -> list[str]:
    return [line for line in describe(report) if word in line]


def test_report_survives_json(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report)) == report


def test_every_line_is_ok_or_a_note_with_a_hint(report: dict[str, Any]) -> None:
    lines = describe(report)
    assert f"torch {torch.__version__}" in lines[0]
    assert all(line.startswith("ok    ") or (line.startswith("note  ") and "; " in line) for line in lines)


def test_threads_that_do_not_fit_the_cores_are_noted(report: dict[str, Any]) -> None:
    cpu = {**report["cpu"], "physical_cores": 7, "usable_threads": 5, "torch_threads": 11, "omp_num_threads": None}
    assert lines_about("11 threads", {**report, "cpu": cpu}) == [
        "note  torch uses 11 threads for 5 usable cores; setting OMP_NUM_THREADS=5 may be faster"
    ]
    cpu |= {"torch_threads": 3, "omp_num_threads": "3"}
    assert "OMP_NUM_THREADS is 3; set OMP_NUM_THREADS=5" in lines_about("3 threads", {**report, "cpu": cpu})[0]
    cpu |= {"torch_threads": 5}
    assert lines_about("5 threads", {**report, "cpu": cpu})[0].startswith("ok")


def test_a_gpu_and_its_kernels(report: dict[str, Any]) -> None:
    properties = SimpleNamespace(name="T4", total_memory=16e9, major=7, minor=5)
    cuda = {"built_for": "13.0", "trouble": None, "devices": [describe_device(properties)]}
    attention = {"flash": False, "efficient": True}
    gpu = {**report, "cuda": cuda, "attention": attention}
    assert lines_about("T4", gpu)[0].startswith("note  GPU T4, 16 GB, compute capability 7.5; it has no bfloat16")
    assert lines_about("kernels", gpu)[0].startswith("note  attention kernels: efficient; ")
    assert "triton" in lines_about("torch.compile", {**gpu, "compile": {**report["compile"], "triton": False}})[0]


def test_a_gpu_torch_cannot_reach_says_why(report: dict[str, Any]) -> None:
    cuda = {"built_for": "13.0", "trouble": "the driver is too old", "devices": []}
    [line] = lines_about("no GPU", {**report, "cuda": cuda, "mps": False})
    assert line == "note  no GPU, although torch is built for GPUs; the driver is too old"


def test_what_is_missing_is_named(report: dict[str, Any]) -> None:
    bare = {
        **report,
        "disk_free_gb": 0.5,
        "compile": {"compiler": None, "python_headers": False, "triton": False},
        "packages": {**report["packages"], "tensorboard": None},
    }
    assert lines_about("disk", bare)[0].startswith("note")
    assert "C++ compiler" in lines_about("torch.compile", bare)[0]
    assert "pip install tensorboard" in lines_about("tensorboard", bare)[0]
