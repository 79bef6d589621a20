"""clearformer plan: figures for this machine and for others, advice that fits, a batch file."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearformer.bundled.corpus import generate
from clearformer.planning import calibration
from clearformer.planning.devices import known_devices
from clearformer.planning.slurm import divide

CliCall = Callable[..., Any]
CEILINGS = {"memory_gb_per_s": 10.0, "matmul_tflops": 0.1, "dispatch_us": 2.0, "overhead_us": 10.0, "process_mb": 300.0}


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in generate(300)), encoding="utf-8")


def plan(cli: CliCall, *options: str) -> dict[str, Any]:
    arguments = ("--pairs", "pairs.tsv", "--model", "transformer-tiny", "--set", "train.tokens=512", *options)
    return dict(json.loads(cli("plan", *arguments, "--json").out))


def test_memory_adds_up_and_hours_are_steps_times_seconds(cli: CliCall) -> None:
    result = plan(cli, "--device", "h100", "--steps", "1000")
    assert result["peak_mb"] == pytest.approx(sum(result["memory_mb"].values()), abs=1)
    assert result["hours"] == pytest.approx(1000 * result["seconds_per_step"] / 3600, rel=1e-3)
    assert result["fits"]
    assert result["advice"] == []


def test_several_gpus_share_a_sharded_model(cli: CliCall) -> None:
    whole = plan(cli, "--device", "h100", "--gpus", "8")
    shards = plan(cli, "--device", "h100", "--gpus", "8", "--set", "train.parallel=shard")
    assert shards["memory_mb"]["optimiser"] == pytest.approx(whole["memory_mb"]["optimiser"] / 8, abs=0.1)
    assert shards["memory_mb"]["gathered blocks"] > 0
    assert shards["memory_mb"]["gathered embeddings and head"] > 0
    assert whole["memory_mb"]["exchange"] > 0


def test_what_does_not_fit_gets_options_that_fit(cli: CliCall, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    known = known_devices()
    needed = plan(cli, "--device", "l4")
    monkeypatch.setitem(known, "l4", replace(known["l4"], memory_gb=0.99 * needed["peak_mb"] / 1e3))
    result = plan(cli, "--device", "l4")
    assert not result["fits"]
    assert result["advice"]
    assert all(advice["fits"] for advice in result["advice"])
    assert plan(cli, "--device", "l4", *result["advice"][0]["options"].split())["fits"]


def test_this_machine_is_measured_once(cli: CliCall, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def calibrate(kind: str) -> dict[str, float]:
        calls.append(kind)
        return CEILINGS

    monkeypatch.setattr(calibration, "calibrate", calibrate)
    first, second = (plan(cli, "--device", "cpu") for _ in range(2))
    assert calls == ["cpu"]
    for part in ("weights", "optimiser", "activations"):
        assert first["memory_mb"][part] == second["memory_mb"][part]
    assert all(300 <= result["memory_mb"]["process"] < 400 for result in (first, second))  # and what was left by data
    assert first["seconds_per_step"] == second["seconds_per_step"]  # the operations, too, are measured once
    assert first["peak_mb"] == pytest.approx(second["peak_mb"], rel=0.2)  # the holes of glibc differ


def test_an_unknown_device_gets_a_suggestion(cli: CliCall) -> None:
    result = cli("plan", "--pairs", "pairs.tsv", "--device", "h10")
    assert result.code == 1
    assert "h100" in result.err


def test_a_recipe_whose_data_is_elsewhere_is_planned_with_full_batches(cli: CliCall, tmp_path: Path) -> None:
    Path("far.toml").write_text('data.train.path = "far.tsv"\ntrain.steps = 10\ntext.vocab_size = 500\n')
    result = json.loads(cli("plan", "far.toml", "--device", "a100", "--json").out)
    assert result["steps"] == 10
    assert "does not exist" in result["note"]


def test_the_batch_file_is_valid_and_has_the_arguments_of_train(
    cli: CliCall, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ["plan", "--pairs", "pairs.tsv", "--steps", "50", "--device", "h100", "--gpus", "16", "--slurm"]
    monkeypatch.setattr("sys.argv", ["clearformer", *arguments, "--out", "runs/x"])
    text = cli(*arguments, "--out", "runs/x").out
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert "#SBATCH --signal=TERM@300\n" in text
    assert "arguments=(--pairs pairs.tsv --steps 50 --set train.resume=always --out runs/x)" in text
    assert "export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=280\n" in text
    assert "--nproc-per-node=8" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.parametrize(("n", "expected"), [(1, (1, 1)), (8, (1, 8)), (12, (2, 6)), (16, (2, 8)), (24, (3, 8))])
def test_every_node_of_a_batch_file_has_the_same_number_of_gpus(n: int, expected: tuple[int, int]) -> None:
    assert divide(n) == expected


@pytest.mark.parametrize(("n", "hint"), [("9", "--gpus 8, or --gpus 10"), ("17", "--gpus 16, or --gpus 18")])
def test_a_number_of_gpus_is_not_rounded(cli: CliCall, n: str, hint: str) -> None:
    result = cli("plan", "--pairs", "pairs.tsv", "--device", "h100", "--gpus", n, "--slurm")
    assert result.code == 1
    assert hint in result.err
    assert result.out == ""


def test_a_choice_of_resume_stays(cli: CliCall, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["plan", "--pairs", "pairs.tsv", "--device", "h100", "--set", "train.resume=never", "--slurm"]
    monkeypatch.setattr("sys.argv", ["clearformer", *arguments])
    text = cli(*arguments).out
    assert "train.resume=never" in text
    assert "train.resume=always" not in text


@pytest.mark.parametrize("before", ["", "text8\n", "the cat\n" * 60])
def test_a_large_text_with_a_very_long_line_is_planned_with_full_batches(
    cli: CliCall, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """As text8, of which no lines can be taken as a sample, with or without a heading."""
    from clearformer.data import sources
    from clearformer.planning import batches

    monkeypatch.setattr(batches, "SAMPLE", 1000)
    monkeypatch.setattr(batches, "MAX_LINE", 500)
    monkeypatch.setattr(sources, "MAX_LINE", 500)
    monkeypatch.setattr(sources, "LINE_PART", 50)
    Path("text8.txt").write_text(before + "the cat sat on the mat " * 500)
    sizes = ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1", "model.max_length=32"]
    settings = [part for setting in [*sizes, "train.tokens=64"] for part in ("--set", setting)]
    arguments = ("--text", "text8.txt", "--model", "gpt", "--device", "h100", "--steps", "10", *settings)
    shown = json.loads(cli("plan", *arguments, "--json").out)
    assert shown["fits"]
    assert "full batches" in json.dumps(shown)
