"""import, export and merge, and every verb on what they make."""

import json
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import clearformer
from clearformer.verbs.import_ import import_model

CliCall = Callable[..., Any]
TEXTS = ["the dog sees a tree", "a man", "the cat likes the river"]


@pytest.mark.parametrize("is_imported", [True, False])
@torch.no_grad()
def test_translate_takes_a_marian_as_it_is_and_imported(
    cli: CliCall, hub: Callable[..., Path], tmp_path: Path, is_imported: bool
) -> None:
    folder = hub("marian")
    theirs, tok = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    if is_imported:
        assert cli("import", folder, tmp_path / "run") == (0, f"{tmp_path / 'run'}\n", "")
    code, out, err = cli("translate", "-m", tmp_path / "run" if is_imported else folder, "--beam", 1, "--json", *TEXTS)
    assert (code, err) == (0, "")
    words: set[str] = set()
    for text, row in zip(TEXTS, json.loads(out)["translations"], strict=True):
        ids = torch.tensor([[*tok(text)["input_ids"], 0]])
        said = theirs.generate(ids, max_length=2 * ids.size(1) + 17, num_beams=1, do_sample=False)[0, 1:].tolist()
        assert row["translation"] == tok.decode([*takewhile(bool, said)], skip_special_tokens=True)
        words |= {*row["translation"].split()}
    assert len(words) > 3


def test_every_verb_for_translators_takes_an_imported_one(
    cli: CliCall, hub: Callable[..., Path], corpus: Path, tmp_path: Path
) -> None:
    import_model(hub("marian"), run := tmp_path / "run")
    score = json.loads(cli("score", "-m", run, "--source", "the dog", "--json", "le chien", "le chat").out)["scores"]
    assert {row["text"] for row in score} == {"le chien", "le chat"}
    assert json.loads(cli("evaluate", "-m", run, "--pairs", corpus.with_name("test.tsv"), "--json").out)["bleu"] >= 0
    assert cli("neighbours", "-m", run, "dog").code == 0
    assert json.loads(cli("inspect", run, "--json").out)["parameters"] == clearformer.inspect(run)["parameters"]
    steps = ("--set", "train.steps=3", "--set", "train.validate_every=3", "--set", "train.tokens=257")
    room = ("--set", "data.filter.max_tokens=36", "--device", "cpu")
    tuned = cli("finetune", "-m", run, "--pairs", corpus, "--out", tmp_path / "tuned", *steps, *room)
    assert (tuned.code, tuned.out) == (0, f"{tmp_path / 'tuned'}\n")
    assert cli("translate", "-m", tmp_path / "tuned", "the dog").code == 0
    again = cli("train", run / "recipe.toml", "--out", tmp_path / "again")
    assert (again.code, again.out) == (1, "")
    assert "has no [data]\nhint: " in again.err


def test_every_verb_for_language_models_takes_an_imported_one(
    cli: CliCall, hub: Callable[..., Path], tmp_path: Path
) -> None:
    folder = hub("llama", is_opened=True)
    report = json.loads(cli("import", folder, run := tmp_path / "run", "--json").out)
    assert report == {"run": str(run), "kind": "gpt", "parameters": report["parameters"], "format": "huggingface"}
    said = [cli("generate", "-m", path, "--temperature", 0, "--max-new", 7, "the dog").out for path in (folder, run)]
    assert said[0] == said[1]
    assert said[0].startswith("the dog")
    (tmp_path / "book.txt").write_text("the dog sees a tree\n" * 13)
    told = json.loads(cli("evaluate", "-m", run, "--text", tmp_path / "book.txt", "--json").out)
    assert told["tokens"] > 13 * 5
    assert len(json.loads(cli("score", "-m", run, "--json", *TEXTS).out)["scores"]) == 3
    assert cli("fill", "-m", run, "the ___ sees", "--candidates", "dog,cat").code == 0


def test_a_translator_of_ours_is_exported_if_it_is_like_marian(
    cli: CliCall, corpus: Path, small: list[str], tmp_path: Path
) -> None:
    """Trained by command, exported by command: transformers translates as we do."""
    marian = ["model.residual=post", "model.final_norm=false", 'model.positions={kind="sinusoidal", layout="halves"}']
    shape = [word for setting in marian for word in ("--set", setting)]
    trained = cli("train", "--pairs", corpus, "--out", run := tmp_path / "run", *small, *shape, "--device", "cpu")
    assert trained.code == 0, trained.err
    code, out, err = cli("export", run, hub := tmp_path / "hub", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"folder": str(hub), "model_type": "marian"}
    theirs, tok = AutoModelForSeq2SeqLM.from_pretrained(hub), AutoTokenizer.from_pretrained(hub)
    ours = clearformer.load(run)
    for text in ("the dog sees a tree.", "a girl likes the river."):
        ids = tok(text, return_tensors="pt", return_token_type_ids=False)
        said = theirs.generate(**ids, max_new_tokens=30, num_beams=1, do_sample=False)[0]
        assert tok.decode(said, skip_special_tokens=True) == ours.translate([text], beam=1)[0]
    back, here = (cli("translate", "-m", folder, "--beam", 2, "the dog sees a tree.") for folder in (hub, run))
    assert back == here


def test_what_cannot_be_done_is_one_sentence_and_a_hint(
    cli: CliCall, run: Path, hub: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (tmp_path / "notes.pdf").touch()
    for arguments, problem in (
        (("export", run, out, "--format", "torchvision"), "torchvision"),
        (("export", run, out, "--format", "tflite"), "there is no export format `tflite`"),
        (("import", tmp_path / "notes.pdf", out), "unsupported file type"),
        (("import", run, out), "is not a Hugging Face folder"),
        (("merge", run, out), "was trained in full: it has no LoRA adapter to merge"),
        (("merge", hub("gpt2"), out), "is not an adapter"),
        (("generate", "-m", hub("gpt2"), "--chat", "hello"), "has no chat template"),
        (("generate", "-m", hub("marian", "mt"), "--chat", "hello"), "is a translator: it has no chat template"),
        (("translate", "-m", tmp_path / "hub", "hello"), "is a language model: it cannot translate"),
    ):
        code, shown, err = cli(*arguments)
        assert (code, shown) == (1, ""), arguments
        sentence, _, hint = err.partition("\nhint: ")
        assert problem in sentence
        assert hint
        assert "\n" not in sentence
    assert not out.exists()


def test_merge_by_command(cli: CliCall, hub: Callable[..., Path], tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_pretrained(hub("gpt2"))
    config = LoraConfig(r=3, lora_alpha=700, target_modules=["c_attn"], fan_in_fan_out=True)
    adapted = get_peft_model(model, config)
    torch.nn.init.normal_(adapted.base_model.model.transformer.h[0].attn.c_attn.lora_B["default"].weight)
    adapted.save_pretrained(tmp_path / "adapter")
    code, out, err = cli("merge", tmp_path / "adapter", tmp_path / "merged", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["base"] == str(tmp_path / "hub")
    said = [cli("score", "-m", tmp_path / name, "the dog sees").out for name in ("merged", "hub")]
    assert said[0] != said[1]
