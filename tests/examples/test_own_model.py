"""A user's own model, from outside the package, through the ordinary command line."""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch

from clearformer.cli import app
from clearformer.data.batch import Batch
from clearformer.models import MODELS

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = {"red": "rouge", "blue": "bleu", "big": "grand", "old": "vieux", "new": "neuf"}
THINGS = {
    "tree": "arbre",
    "house": "maison",
    "book": "livre",
    "car": "auto",
    "dog": "chien",
    "cat": "chat",
    "cup": "tasse",
}


@pytest.fixture(autouse=True)
def beside_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder that holds own_model.py, and forget the model afterwards."""
    (tmp_path / "own_model.py").write_text((EXAMPLES / "own_model.py").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(MODELS, "added", {})
    yield
    sys.modules.pop("own_model", None)


def clearformer(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as stop:
        app(["--plugin", "own_model", *arguments])
    assert stop.value.code == code


def test_it_trains_and_translates(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(f"a {a} {n}", f"un {m} {b}") for (a, b), (n, m) in product(WORDS.items(), THINGS.items())]
    Path("pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs * 3), encoding="utf-8")
    settings = [
        "train.steps=60",
        "train.tokens=211",
        "schedule.warmup=10",
        "optim.lr=0.01",
        "train.ema=0",
        "model.d_model=37",
    ]
    sets = [word for setting in settings for word in ("--set", setting)]
    clearformer("train", "--pairs", "pairs.tsv", "--model", "two-bags", "--out", "run", "--device", "cpu", *sets)
    capsys.readouterr()
    clearformer("translate", "--model", "run", "a blue cup", "a big tree")
    assert capsys.readouterr().out.splitlines() == ["un tasse bleu", "un arbre grand"]
    clearformer("translate", "--model", "run", "--align", "a blue cup", code=1)
    assert capsys.readouterr().err.startswith("error: run has no attention")
    clearformer("inspect", "run")
    assert "mlp.0" in capsys.readouterr().out


def test_steps_say_what_the_whole_says() -> None:
    """Decoding one word at a time, on two branches, gives the logits of the forward pass."""
    import own_model

    torch.manual_seed(0)
    B, S, T, V = 2, 5, 3, 11
    model = own_model.TwoBags(own_model.TwoBagsConfig(source_vocab=V, target_vocab=V, d_model=7)).double().eval()
    source, target = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    expected = model(Batch(source, mask, target, target))
    state = model.start(source, mask)
    for t in range(T):
        logits, state = model.step(target[:, t : t + 1].expand(B, 2 if t else 1), state)
        torch.testing.assert_close(logits, expected[:, t : t + 1].expand_as(logits))
        state.reorder(torch.zeros(B, 2, dtype=torch.long))
