"""Adapters of several run folders on one base compute what each run computes alone."""

from pathlib import Path

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.errors import CheckpointError
from clearformer.layers.row_choice import rows_choose
from clearformer.loading.adapters import open_with_adapters
from clearformer.loading.open import handle_of, open_model

LINES = "one two buckle my shoe\nthree four knock at the door\n", "four shoes at the door\nbuckle three hemmed wool\n"
SIZES = [
    "model.n_layers=2", "model.n_heads=2", "model.d_model=28", "model.d_ff=46", "model.max_length=61", "optim.lr=0.02",
    "train.tokens=610", "train.steps=20", "train.validate_every=20", "schedule.warmup=5",
]  # fmt: skip
SHORT = ["train.steps=6", "train.validate_every=6"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, two adapters of different ranks, and a model that was fine-tuned whole."""
    folder = tmp_path_factory.mktemp("runs")
    for i, lines in enumerate(LINES):
        (folder / f"{i}.txt").write_text(lines * 61)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        clearformer.train(text=folder / "0.txt", out=folder / "base", settings=SIZES, device="cpu")
        for name, method, more in (
            ("small", "lora", ["tuning.lora.rank=2", "optim.lr=0.05"]),
            ("large", "lora", ["tuning.lora.rank=5", 'tuning.lora.targets=["attn.out","up"]', "decode.max_new=5"]),
            ("whole", "full", []),
        ):
            settings = [*SHORT, *more]
            base, text = folder / "base", folder / "1.txt"
            clearformer.finetune(base, text=text, method=method, out=folder / name, settings=settings, device="cpu")
    return folder


def test_each_adapter_computes_what_its_run_does(runs: Path) -> None:
    names = ["small", "large"]
    base, handles = open_with_adapters(runs / "base", {name: runs / name for name in names})
    texts = ["buckle my shoe", "four wool"]
    scores = []
    for number, (handle, folder) in enumerate(zip([base, *handles.values()], ["base", *names])):
        assert handle.model is base.model
        alone = handle_of(open_model(runs / folder))
        with rows_choose(torch.tensor([[number]])):
            scores.append([one.logprob for one in handle.score(texts)])
        # The update of an adapter alone is merged into the weights: rounded elsewhere, in float32.
        assert scores[-1] == pytest.approx([one.logprob for one in alone.score(texts)], rel=1e-4)
        assert handle.decode == alone.decode
    assert len({round(score, 2) for score, _ in scores}) == 3


def test_what_is_no_adapter_of_the_base_is_refused(runs: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a LoRA adapter"):
        open_with_adapters(runs / "base", {"whole": runs / "whole"})
    with pytest.raises(CheckpointError, match="is an adapter of another model"):
        open_with_adapters(runs / "whole", {"small": runs / "small"})
