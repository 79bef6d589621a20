"""Labelled texts to a classifier, from scratch and on a trained model by each of the four methods."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder, load_tensors, load_weights, save_tensors
from clearformer.data.labels import LabelSource
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.classifier import Classifier
from clearformer.loading.folder import find, read_recipe
from clearformer.loading.open import open_model, relative_base
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.recipe import Recipe
from clearformer.tasks.auto.labels import plan_finetune_labels, plan_labels
from clearformer.tasks.task import Request
from clearformer.text import Tokenizer
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.verbs.load import load, load_as
from clearformer.verbs.merge import merge

from .conftest import save_model, sentences

pytestmark = pytest.mark.usefixtures("no_images")
METHODS = ("full", "lora", "prefix", "head")
PARTIAL = METHODS[1:]
RATES = {"full": 5e-3, "lora": 2e-2, "prefix": 5e-2, "head": 1e-1}
every_method = pytest.mark.parametrize("method", METHODS)
every_partial = pytest.mark.parametrize("method", PARTIAL)


def settings(method: str, steps: int = 120) -> list[str]:
    return [
        f"optim.lr={RATES[method]}",
        "model.dropout=0",
        "data.held_out=0.2",
        "data.held_out_test=0.2",
        "train.tokens=600",
        f"train.steps={steps}",
        "train.validate_every=40",
        "train.save_every=10",
        "train.log_every=10",
        "train.patience=0",
    ]


def plan(base: Path, reviews: Path, method: str, *more: str, steps: int = 60) -> Recipe:
    sources = {"train": {"path": reviews}}
    request = Request(sources, None, [*settings(method, steps), *more], "cpu", Recipe.parse, method)
    return plan_finetune_labels(request, base, read_recipe(base)).recipe


@pytest.fixture(scope="module")
def runs(tiny_bert: Path, reviews: Path, tmp_path_factory) -> dict[str, Path]:
    """The rule learnt by each method."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        for method in METHODS:
            clearformer.finetune(
                tiny_bert, labels=reviews, method=method, out=folder / method, settings=settings(method), device="cpu"
            )
    return {method: folder / method for method in METHODS}


@every_method
def test_a_rule_is_learnt(runs: dict[str, Path], method: str) -> None:
    report = json.loads((runs[method] / "report.json").read_text())
    assert report["test"]["accuracy"] > 0.9
    assert report["valid"]["accuracy"] > 0.9
    judge = load(runs[method])
    assert isinstance(judge, Classifier)
    assert judge.classes == ["bad", "good"]
    fine, not_fine = judge.classify(["the fine film", "the dull film"])
    assert (fine[0].label, not_fine[0].label) == ("good", "bad")
    assert sum(verdict.probability for verdict in fine) == pytest.approx(1)


@every_partial
def test_only_what_is_new_is_saved(runs: dict[str, Path], method: str, tiny_bert: Path) -> None:
    kept, _ = load_tensors(runs[method] / "model.safetensors")
    marks = {"lora": "lora_default", "prefix": "prefix", "head": "classifier"}
    assert all("classifier" in name or marks[method] in name for name in kept)
    assert {"classifier.weight", "classifier.bias"} <= kept.keys()
    report = json.loads((runs[method] / "report.json").read_text())
    assert report["trainable"] == sum(tensor.numel() for tensor in kept.values())
    assert report["trainable"] < report["parameters"] / 3
    last, _ = load_tensors(runs[method] / "last.safetensors")
    assert {name.removeprefix("model.") for name in last if name.startswith("model.")} == kept.keys()


@every_partial
def test_what_is_frozen_does_not_move_by_a_bit(method: str, tiny_bert: Path, reviews: Path, tmp_path: Path) -> None:
    recipe = plan(tiny_bert, reviews, method, "train.ema=0.9", steps=7)
    trainer, task = fit.set_up(recipe, RunFolder(tmp_path / "run"), torch.device("cpu"), World(), None)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train(task.steps(World()))
    after = dict(trainer.model.named_parameters())
    own = {name for name, p in after.items() if p.requires_grad}
    assert own
    assert all(after[name].equal(before[name]) for name in after.keys() - own)
    assert all(not after[name].equal(before[name]) for name in own if not name.endswith(".A"))
    base = load_tensors(tiny_bert / "model.safetensors")[0]
    frozen = {name.removeprefix("base."): p for name, p in after.items() if name.startswith("base.")}
    assert all(frozen[name].equal(base[name]) for name in base if name in frozen)


@pytest.mark.parametrize("method", ["full", "lora", "prefix"])
def test_a_cut_training_goes_on_bit_for_bit(method: str, tiny_bert: Path, reviews: Path, goes_on) -> None:
    goes_on(plan(tiny_bert, reviews, method, "train.ema=0.9", steps=20))


def test_another_base_is_refused(runs: dict[str, Path], tiny_bert: Path, tmp_path: Path) -> None:
    mine, base = (Path(shutil.copytree(path, tmp_path / path.name)) for path in (runs["lora"], tiny_bert))
    recipe = mine / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(Recipe.read(recipe).tuning.base), str(base)))
    texts = ["the fine film", "a long and old story"]
    assert load(mine).logits(texts).equal(load(runs["lora"]).logits(texts))  # the same weights elsewhere
    weights, facts = load_tensors(base / "model.safetensors")
    weights["embedding.weight"][3, 5] += 1e-3
    save_tensors(base / "model.safetensors", weights, facts)
    with pytest.raises(CheckpointError, match="is not the base model of this run: its weights differ"):
        load(mine)
    shutil.rmtree(base)
    with pytest.raises(CheckpointError, match="the base model cannot be loaded") as caught:
        load(mine)
    assert "[tuning]" in str(caught.value.hint)


@every_partial
def test_a_run_and_its_base_may_move_together(
    method: str, tiny_bert: Path, reviews: Path, tmp_path: Path, monkeypatch
) -> None:
    """Wherever the command runs; and a training that was cut off goes on there."""
    here, there = tmp_path / "here", tmp_path / "elsewhere" / "there"
    shutil.copytree(tiny_bert, here / "models" / "bert")
    monkeypatch.chdir(here)
    clearformer.finetune(
        "models/bert", labels=reviews, method=method, out="runs/mine", settings=settings(method, 4), device="cpu"
    )
    assert Recipe.read(here / "runs" / "mine" / "recipe.toml").tuning.base == "../../models/bert"
    expected = load("runs/mine").logits(["the fine film"])
    there.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    here.rename(there)
    assert load(there / "runs" / "mine").logits(["the fine film"]).equal(expected)
    clearformer.train(resume=True, out=there / "runs" / "mine", settings=["train.steps=6"], device="cpu")
    assert Recipe.read(there / "runs" / "mine" / "recipe.toml").tuning.base == "../../models/bert"
    (there / "models").rename(tmp_path / "lost")
    with pytest.raises(CheckpointError, match=r"cannot be loaded: there is no model `\.\./\.\./models/bert`"):
        load(there / "runs" / "mine")


def test_how_a_run_names_its_base() -> None:
    assert relative_base(Path("/a/runs/x"), Path("/a/models/b")) == "../../models/b"
    assert relative_base(Path("/a/runs/x"), Path("/models/b")) == "/models/b"
    assert relative_base(Path("/a/runs/x"), find("en-fr-small")) == "en-fr-small"


def test_everything_tuned_needs_no_base(runs: dict[str, Path], tmp_path: Path) -> None:
    mine = Path(shutil.copytree(runs["full"], tmp_path / "mine"))
    recipe = mine / "recipe.toml"
    base = Recipe.read(recipe).tuning.base
    recipe.write_text(recipe.read_text().replace(base, str(tmp_path / "gone")))
    assert load(mine).classify(["a fine film"])[0][0].label == "good"


def test_a_classifier_may_be_the_base_of_another(runs: dict[str, Path], reviews: Path, tmp_path: Path) -> None:
    clearformer.finetune(
        runs["lora"], labels=reviews, method="head", out=tmp_path / "run", settings=settings("head", 20), device="cpu"
    )
    merged, frozen = open_model(runs["lora"]).network, open_model(tmp_path / "run").network
    assert frozen.base.encoder.blocks[0].attn.qkv.weight.equal(merged.base.encoder.blocks[0].attn.qkv.weight)
    with pytest.raises(CheckpointError, match="by prefix tuning and cannot be the base model of another run"):
        clearformer.finetune(runs["prefix"], labels=reviews, out=tmp_path / "no", device="cpu")


def test_a_decoder_judges_by_its_last_token(words: Tokenizer, reviews: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"n_layers": 1, "d_model": 32, "d_ff": 46, "n_heads": 2, "max_length": 23, "dropout": 0.0}
    gpt = GPT(GPTConfig(vocab=words.vocab_size, tied=False, attention_dropout=0.0, **sizes))
    base = save_model(tmp_path / "gpt", gpt, words)
    report = clearformer.finetune(
        base, labels=reviews, out=tmp_path / "run", settings=[*settings("full"), "optim.lr=0.01"], device="cpu"
    )
    assert Recipe.read(tmp_path / "run" / "recipe.toml").model.pooling == "last"
    assert report["test"]["accuracy"] > 0.9


def test_from_scratch_without_configuration(reviews: Path, tmp_path: Path) -> None:
    report = clearformer.train(
        labels=reviews, out=tmp_path / "run", settings=["train.steps=150", "data.held_out_test=0.2"], device="cpu"
    )
    assert report["test"]["accuracy"] > 0.9
    assert set(report["valid"]) == {"accuracy", "macro_f1", "loss"}
    assert json.loads((tmp_path / "run" / "classes.json").read_text()) == ["bad", "good"]
    assert report["trainable"] == report["parameters"]


def test_a_training_file_is_read_once(reviews: Path, tmp_path: Path, monkeypatch) -> None:
    """For all three splits, vocabulary and classes included."""
    asked = plan_labels(Request({"train": {"path": reviews}}, None, ["data.held_out_test=0.2"], "cpu", Recipe.parse))
    read, reads = LabelSource.read, list[Path]()
    monkeypatch.setattr(LabelSource, "read", lambda source, *args: reads.append(source.path) or read(source, *args))
    task = fit.prepare(asked.recipe, RunFolder(tmp_path / "run"), World(), None, asked.survey)
    assert reads == [reviews]
    assert sum(len(task.split(name).rows) for name in ("train", "valid", "test")) == 500


def test_what_is_counted_are_texts(runs: dict[str, Path]) -> None:
    report = json.loads((runs["full"] / "report.json").read_text())
    task = fit.prepare(Recipe.read(runs["full"] / "recipe.toml"), RunFolder(runs["full"]), World(), None, None)
    steps = task.steps(World())
    places = [(epoch, position) for epoch in range(report["steps"]) for position in range(steps.count(epoch))]
    seen = [steps.load(*place, World())[0] for place in places[: report["steps"]]]
    assert report["examples"] == sum(len(batch) for batches in seen for batch in batches)
    assert report["examples_per_second"] > 0
    assert not {"tokens", "tokens_per_second"} & report.keys()
    lines = read_metrics(runs["full"] / "metrics.jsonl")
    assert all("examples_per_s" in line for line in lines if line["kind"] == "train")
    assert not any("tokens_per_s" in line for line in lines)


def test_pairs_are_judged_together(tiny_bert: Path, tmp_path: Path) -> None:
    texts = sentences(80, 9)
    rows = [(a, a if i % 2 else b, "same" if i % 2 else "other") for i, (a, b) in enumerate(pairwise(texts))]
    path = tmp_path / "pairs.tsv"
    path.write_text("label\ta\tb\n" + "".join(f"{label}\t{a}\t{b}\n" for a, b, label in rows))
    clearformer.finetune(
        tiny_bert,
        labels=path,
        text_columns=("a", "b"),
        label_column="label",
        out=tmp_path / "run",
        settings=settings("full", 10),
        device="cpu",
    )
    judge = load_as(Classifier, tmp_path / "run")
    assert judge.is_pair
    swapped = judge.logits(["the film", "a story"], ["a story", "the film"])
    assert not swapped[0].allclose(swapped[1])
    with pytest.raises(DataError, match="run was trained on pairs of texts"):
        judge.classify(["the film"])
    scores = clearformer.evaluate(tmp_path / "run", labels=path, device="cpu")  # in the columns of the training
    assert scores["examples"] == len(rows)


def test_a_regression_comes_close_to_numbers(tiny_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "stars.tsv"
    path.write_text("".join(f"{text}\t{text.split().count('fine') * 2 - 1}\n" for text in sentences(240, 7)))
    more = [*settings("full"), "data.regression=true"]
    report = clearformer.finetune(tiny_bert, labels=path, out=tmp_path / "run", settings=more, device="cpu")
    assert report["test"]["pearson"] > 0.9
    assert set(report["valid"]) == {"loss", "pearson"}
    judge = load_as(Classifier, tmp_path / "run")
    high, low = judge.values(["a fine film", "a dull film"])
    assert high > 0.4 > -0.4 > low
    with pytest.raises(CheckpointError, match="predicts values, not classes"):
        judge.classify(["a fine film"])
    assert clearformer.evaluate(tmp_path / "run", labels=path, device="cpu")["pearson"] > 0.9


@pytest.mark.parametrize(
    ("lines", "more", "problem"),
    [
        (["a film\tgood"] * 9 + ["a plot\tgood"] * 9, [], "all training texts have the same label, `good`"),
        ([f"film {i}\t{'ab'[i % 2]}" for i in range(20)], ["data.regression=true"], "`.` is not a number"),
    ],
)
def test_labels_that_teach_nothing(tiny_bert: Path, tmp_path: Path, lines: Any, more: Any, problem: str) -> None:
    (tmp_path / "odd.tsv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=problem):
        clearformer.finetune(
            tiny_bert, labels=tmp_path / "odd.tsv", out=tmp_path / "run", settings=["data.held_out=0.3", *more]
        )


def test_a_label_that_training_never_sees_is_named(tiny_bert: Path, reviews: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("a film\tfair\na story\tgood\n")
    with pytest.raises(DataError, match="1 label in the test data does not occur in the training data: `fair`"):
        clearformer.finetune(tiny_bert, labels=reviews, test=tmp_path / "test.tsv", out=tmp_path / "run")


def test_what_learns_is_one_of_four(tiny_bert: Path, reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no fine-tuning method `lorra`\nhint: did you mean `lora`"):
        clearformer.finetune(tiny_bert, labels=reviews, method="lorra")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no data to fine-tune on"):
        clearformer.finetune(tiny_bert)
    with pytest.raises(ConfigError, match='"lora" needs `base`'):
        Recipe.parse({"data": {"train": {"path": reviews}}, "tuning": {"method": "lora"}}, "x.toml")


def test_tokens_cannot_be_judged_by_a_file_of_texts(tiny_bert: Path, reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='"none" is for labelled words'):
        fit.train(plan(tiny_bert, reviews, "full", "model.pooling=none"), tmp_path / "run", device="cpu")


def test_texts_are_cut_to_what_the_base_reads(runs: dict[str, Path]) -> None:
    judge = load(runs["head"])
    long = " ".join(["film"] * 40)
    assert judge.max_tokens == 23
    assert judge.logits([long]).equal(judge.logits([long + " fine"]))
    assert judge.logits(["a  fine\u00a0film "]).equal(judge.logits(["a fine film"]))


def test_a_translator_is_no_base(reviews: Path) -> None:
    with pytest.raises(ConfigError, match="is a model for translation; a text classifier cannot be built on it"):
        clearformer.finetune("en-fr-small", labels=reviews)


def test_a_recipe_takes_its_sizes_from_its_base(tiny_bert: Path, reviews: Path, tmp_path: Path, monkeypatch) -> None:
    """As one that is written by hand does, with a base named from where the command runs."""
    monkeypatch.chdir(tiny_bert.parent)
    table = {
        "data": {"train": {"path": str(reviews)}},
        "model": {"kind": "classifier"},
        "tuning": {"method": "head", "base": tiny_bert.name},
        "train": {"steps": 2, "tokens": 200, "validate_every": 2},
    }
    fit.train(Recipe.parse(table, "mine.toml"), tmp_path / "run", device="cpu")
    saved = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert (saved.model.base.d_model, saved.model.n_classes) == (32, 2)
    assert saved.tuning.fingerprint
    monkeypatch.chdir(tmp_path)
    network = open_model(tmp_path / "run").network
    own = load_tensors(tiny_bert / "model.safetensors")[0]
    load_weights(network.base, {k: v for k, v in own.items() if k in network.base.state_dict()}, "the base")


def test_a_merged_adapter_stands_by_itself(runs: dict[str, Path], tiny_bert: Path, tmp_path: Path) -> None:
    mine, base = (Path(shutil.copytree(path, tmp_path / path.name)) for path in (runs["lora"], tiny_bert))
    recipe = mine / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(Recipe.read(recipe).tuning.base), str(base)))
    texts = ["a good film", "a bad film"]
    expected = load(mine).logits(texts)
    (mine / "calibration.json").write_text('{"temperature": 1.5}')
    report = merge(mine, tmp_path / "merged")
    shutil.rmtree(base)
    shutil.rmtree(mine)
    merged = load(tmp_path / "merged")
    assert merged.logits(texts).equal(expected)
    assert merged.temperature == 1.5
    assert merged.classes == load(runs["full"]).classes
    assert report["base"] == str(base)
    for method, said in (("head", "was fine-tuned with --method head"), ("full", "no LoRA adapter to merge")):
        with pytest.raises(CheckpointError, match=said):
            merge(runs[method], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_bert_by_name_is_as_large_as_one_chosen(reviews: Path) -> None:
    assert clearformer.plan(labels=reviews, model="bert") == clearformer.plan(labels=reviews)


@pytest.mark.parametrize("model", ["bigru", "textcnn", "lstm"])
def test_other_networks_learn_the_rule_too(reviews: Path, tmp_path: Path, model: str) -> None:
    """Without configuration: a bidirectional GRU, the notes' CNN, and a language model's network, read at its end."""
    small = [
        "train.steps=120",
        "train.tokens=512",
        "train.validate_every=60",
        "optim.lr=0.01",
        "model.base.dropout=0.1",
    ]
    sizes = [f"model.base.d_model={36 if model == 'textcnn' else 38}"]
    sizes += [] if model == "lstm" else ["model.base.d_embedding=29"]
    report = clearformer.train(
        labels=reviews, model=model, settings=[*small, *sizes], out=tmp_path / "run", device="cpu"
    )
    assert report["valid"]["accuracy"] > 0.95
    told = clearformer.classify(tmp_path / "run", ["the fine old plot", "a dull scene and a story"])
    assert [row["label"] for row in told] == ["good", "bad"]
    assert clearformer.embed(tmp_path / "run", ["a film"]).shape == (1, int(sizes[0].split("=")[1]))
