"""Run folders that cannot be used: half-written, damaged, of something else."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

CliCall = Callable[..., Any]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_after(path: Path, words: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index(words) + len(words)], encoding="utf-8")


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def reshape(path: Path) -> None:
    tensors = load_file(path)
    tensors["decoder.norm.weight"] = torch.ones(3)
    save_file(tensors, path)


def shrink(path: Path) -> None:
    """A tokenizer of the same family with a word less."""
    import tokenizers

    lines = ["the dog sees a tree.", "le chien voit un arbre."] * 9
    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    special = ["<pad>", "<bos>", "<eos>", "<unk>"]
    other.train_from_iterator(
        lines, tokenizers.trainers.BpeTrainer(vocab_size=53, special_tokens=special, show_progress=False)
    )
    other.save(str(path))


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "still in training": (lambda f: (f / "model.safetensors").unlink(), "has no trained weights yet", "--resume"),
    "truncated": (lambda f: truncate(f / "model.safetensors"), "model.safetensors is truncated", "again"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors is truncated", "again"),
    "pickled": (
        lambda f: (f / "model.safetensors").write_bytes(pickle.dumps({"weight": [1.0]})),
        "not a safetensors file",
        "pickled",
    ),
    "foreign": (
        lambda f: save_file({"bert.embeddings": torch.ones(3)}, f / "model.safetensors"),
        "does not fit the model",
        "another model",
    ),
    "other sizes": (
        lambda f: reshape(f / "model.safetensors"),
        "`decoder.norm.weight` has the shape (3,), not (28,)",
        "another run",
    ),
    "other vocabulary": (lambda f: shrink(f / "tokenizer.json"), "the source tokenizer has 53 tokens", "trained with"),
    "truncated tokenizer": (lambda f: truncate(f / "tokenizer.json"), "is not a valid tokenizer.json", "again"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer", "tokenizer.json"),
    "no recipe": (lambda f: (f / "recipe.toml").unlink(), "it has no recipe.toml", "--out folder"),
    "truncated recipe": (lambda f: cut_after(f / "recipe.toml", "d_model ="), "recipe.toml is not valid TOML", ""),
    "foreign kind": (
        lambda f: replace_in(f / "recipe.toml", 'kind = "transformer"', 'kind = "mamba"'),
        "unknown architecture `mamba`",
        "--plugin",
    ),
    "newer recipe": (
        lambda f: replace_in(f / "recipe.toml", "[model]\n", "[model]\nflux = 3\n"),
        "recipe.toml: [model]: unknown key `flux`",
        "",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_cannot_be_used_says_why(cli: CliCall, copy: Path, damage: str) -> None:
    spoil, problem, hint = DAMAGE[damage]
    spoil(copy)
    code, out, err = cli("translate", "-m", copy, "the dog sees a tree.")
    assert (code, out) == (1, "")
    sentence, _, advice = err.partition("\nhint: ")
    assert sentence.startswith("error: ")
    assert problem in sentence
    assert hint in advice
    assert "Traceback" not in err


@pytest.mark.parametrize("verb", [("translate", "-m"), ("neighbours", "dog", "-m"), ("inspect",)])
def test_a_model_that_is_not_there(cli: CliCall, tmp_path: Path, verb: tuple[str, ...]) -> None:
    code, out, err = cli(*verb, tmp_path / "nope")
    assert (code, out) == (1, "")
    assert f"{tmp_path / 'nope'}`" in err
    assert "\nhint: " in err
    code, out, err = cli(*verb, tmp_path)
    assert (code, out) == (1, "")
    assert "is not a run folder" in err


def test_a_truncated_checkpoint_is_not_resumed_from(cli: CliCall, copy: Path) -> None:
    truncate(copy / "last.safetensors")
    weights = (copy / "model.safetensors").read_bytes()
    code, out, err = cli("train", "--resume", "--out", copy, "--set", "train.steps=70", "--device", "cpu")
    assert (code, out) == (1, "")
    assert "last.safetensors is truncated" in err
    assert "\nhint: " in err
    assert (copy / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "--model", "Helsinki-NLP/opus-mt-en-de", "A dog."),
        ("finetune", "--model", "Helsinki-NLP/opus-mt-en-de", "--pairs", "x.tsv"),
        ("import", "Helsinki-NLP/opus-mt-en-de", "runs/marian"),
    ],
)
def test_a_name_of_the_hub_is_no_folder(
    cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = cli(*command)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("error: there is no model ")
    assert "hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de\n" in shown.err
    assert not [*tmp_path.iterdir()]
