"""Full-batch gradient descent: a step of the whole training set, however it is cut into micro-batches."""

from pathlib import Path

import torch

import clearformer
from clearformer.checkpoint import load_tensors

SETTINGS = [
    "model.kind=transformer", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=14",
    "model.d_ff=14", "model.n_heads=2", "model.dropout=0", "optim.kind=gd", "optim.lr=0.1", "schedule.warmup=1",
    "train.ema=0", "train.precision=float64", "text.kind=word",
]  # fmt: skip


def weights(folder: Path, tokens: int, step: str = "epoch") -> dict[str, torch.Tensor]:
    out = folder / f"{tokens}-{step}"
    settings = [*SETTINGS, f"train.per_step={step}", f"train.tokens={tokens}"]
    clearformer.train(pairs=folder / "pairs.tsv", out=out, steps=3, settings=settings)
    return load_tensors(out / "last.safetensors")[0]


def test_micro_batches_do_not_change_it(tmp_path: Path) -> None:
    lines = [f"{a} {b}\t{b} {a} {b}" for a in "abcdefg" for b in "hijklm"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one, other = weights(tmp_path, 16), weights(tmp_path, 64)
    names = [name for name in one if one[name].is_floating_point() and one[name].dim() > 1]
    assert names
    for name in names:
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-12)
    apart = weights(tmp_path, 16, "batches")
    assert not all(one[name].allclose(apart[name], rtol=1e-6, atol=1e-9) for name in names)
