"""Histograms during training: they count, they survive a resumed run, and they change no bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.checkpoint import load_tensors
from clearformer.errors import Paused
from clearformer.layers.histogram import as_json, histogram, magnitudes
from clearformer.training.journal import read_metrics

from .test_loop import ToySteps, trainer


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_counts_by_hand() -> None:
    one = as_json(histogram(torch.tensor([0.0, 0.5, 1.0, 31.0, 32.0, 32.0])))
    assert (one["low"], one["high"]) == (0, 32)
    assert one["counts"] == [2, 1, *[0] * 28, 0, 3]
    assert one["outside"] == 0
    assert as_json(histogram(torch.full((7,), 2.5)))["counts"] == [7, *[0] * 31]


def test_outliers_do_not_hide_the_others() -> None:
    x = torch.cat([torch.randn(991, generator=torch.Generator().manual_seed(0)), torch.tensor([500.0, -300.0])])
    one = as_json(histogram(x))
    assert (one["min"], one["max"]) == (-300, 500)
    assert one["outside"] == 2
    assert sum(n > 0 for n in one["counts"]) > 20
    assert -5 < one["low"] < -2


def test_magnitudes_by_hand() -> None:
    """Half a decade per bin, from 1e-12: 1e-12 and 0 are in bin 0, 2e-3 in bin 18, and 1e9 in the last."""
    counts = as_json(magnitudes(torch.tensor([0.0, 1e-20, -2e-3, 1e9])))["counts"]
    assert (counts[0], counts[18], counts[31], sum(counts)) == (2, 1, 1, 4)


def test_histograms_agree_with_numpy() -> None:
    x = torch.randn(997, generator=torch.Generator().manual_seed(0))
    one = as_json(histogram(x))
    expected, _ = np.histogram(x.double().numpy(), 32, (one["low"], one["high"]))
    assert sum(one["counts"]) + one["outside"] == 997
    assert np.abs(np.cumsum(one["counts"]) - np.cumsum(expected)).max() <= 1  # a value on an edge, by rounding


def test_training_is_bit_identical_with_histograms(tmp_path: Path) -> None:
    for name, histograms in (("without", False), ("with", True)):
        trainer(tmp_path / name, histograms=histograms).train(ToySteps())
    off, on = (load_tensors(tmp_path / name / "last.safetensors") for name in ("without", "with"))
    assert all(off[0][name].equal(on[0][name]) for name in off[0])
    assert off[0].keys() == on[0].keys()
    metrics = [
        [{key: value for key, value in row.items() if not key.endswith("per_s")} for row in read_metrics(path)]
        for path in (tmp_path / "without" / "metrics.jsonl", tmp_path / "with" / "metrics.jsonl")
    ]
    assert metrics[0] == metrics[1]
    assert not (tmp_path / "without" / "histograms.jsonl").exists()


def test_one_record_for_each_validation(tmp_path: Path) -> None:
    one = trainer(tmp_path, histograms=True)
    one.train(ToySteps())
    rows = records(tmp_path / "histograms.jsonl")
    assert [row["step"] for row in rows] == [5, 10, 15, 19]
    for row in rows:
        assert row["weights"].keys() == row["gradients"].keys() == {"0", "2"}
        sizes = {sum(layer["counts"]) for layer in row["weights"].values()}
        assert sizes == {5 * 7 + 7, 7 * 2 + 2}
        assert sizes == {sum(layer["counts"]) for layer in row["gradients"].values()}
        rows_of_batch = {sum(layer["counts"]) + layer["outside"] for layer in row["activations"].values()}
        assert len(rows_of_batch) == 2  # 7 and 2 features for each row of the first micro-batch
        assert max(rows_of_batch) * 2 == min(rows_of_batch) * 7
        assert row["activations"].keys() == {"0", "2"}
    assert not one.histograms.hooks
    last = next(iter(rows[-1]["weights"].values()))
    first = torch.cat([p.detach().flatten() for p in one.model[0].parameters()])
    assert (last["low"], last["high"]) == (first.min().item(), first.max().item())


def test_gradients_are_those_before_clipping(tmp_path: Path) -> None:
    small, large = (trainer(tmp_path / str(clip), histograms=True, clip=clip, steps=5) for clip in (1e-6, 0.0))
    for one in (small, large):
        one.train(ToySteps())
    a, b = (records(tmp_path / str(clip) / "histograms.jsonl")[0]["gradients"] for clip in (1e-6, 0.0))
    tops = [max(i for i, n in enumerate(next(iter(one.values()))["counts"]) if n) for one in (a, b)]
    assert min(tops) > 16  # far above the 1e-6 that clipping leaves


def test_a_resumed_run_repeats_no_record(tmp_path: Path) -> None:
    trainer(tmp_path / "whole", histograms=True).train(ToySteps())
    with pytest.raises(Paused):
        trainer(tmp_path / "parts", histograms=True, pause=12).train(ToySteps())
    extra = {"step": 15, "weights": {}, "gradients": {}}  # of a process that was killed after its checkpoint
    with open(tmp_path / "parts" / "histograms.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(extra) + "\n")
    resumed = trainer(tmp_path / "parts", histograms=True)
    resumed.resume()
    resumed.train(ToySteps())
    assert records(tmp_path / "parts" / "histograms.jsonl") == records(tmp_path / "whole" / "histograms.jsonl")
