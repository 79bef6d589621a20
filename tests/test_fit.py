import random
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from clearformer import fit
from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.checksums import CHECKSUMS
from clearformer.data.sources import evenly_spaced
from clearformer.errors import CheckpointError, ConfigError, MachineError
from clearformer.loading import open as loading_open
from clearformer.models.build import build_model
from clearformer.recipe import Recipe
from clearformer.tasks import task_named
from clearformer.tasks.translation import TranslationTask
from clearformer.training import compiling
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics, read_records
from clearformer.training.loop import Trainer
from clearformer.verbs.finetune import finetune
from clearformer.verbs.load import load

TABLE = {
    "text": {"kind": "char"},
    "model": {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 14, "d_ff": 23, "n_heads": 7},
    "schedule": {"warmup": 2},
    "train": {"steps": 4, "tokens": 128, "accumulation": 2, "log_every": 2, "validate_every": 4, "save_every": 2},
    "evaluate": {"max_validation": 3},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    draw = random.Random(5)
    words = ["".join(draw.choices("abcde", k=draw.randint(2, 4))) for _ in range(61)]
    path.write_text("".join(f"{word}{i}\t{word[::-1]}{i}\n" for i, word in enumerate(words)))
    return path


def recipe(pairs: Path, base: Path | None = None, **train) -> Recipe:
    """With a `base`, all weights of that model go on."""
    table = {**TABLE, "data": {"train": {"path": pairs}}, "train": {**TABLE["train"], **train}}
    return Recipe.parse(table | ({} if base is None else {"tuning": {"base": str(base)}}), "test")


@pytest.fixture(scope="module")
def done(pairs, tmp_path_factory) -> Path:
    """A training of four steps."""
    out = tmp_path_factory.mktemp("run") / "done"
    fit.train(recipe(pairs), out, device="cpu")
    return out


@pytest.fixture(autouse=True)
def no_images(monkeypatch):
    """They take longer than the training; `done`, which is made before this, has drawn one."""
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


def test_leaves_everything_behind(done):
    files = {"recipe.toml", "tokenizer.json", "data", "model.safetensors", "last.safetensors", "metrics.jsonl"}
    files |= {"requested.toml", "report.json", "curves.png", "samples.jsonl", CHECKSUMS}
    assert {path.name for path in done.iterdir()} == files
    assert Recipe.read(done / "recipe.toml").model.target_vocab == load(done).target_tokenizer.vocab_size


def test_samples_are_kept_and_a_resumed_run_repeats_none(pairs, tmp_path):
    fit.train(recipe(pairs), tmp_path, device="cpu")
    samples = tmp_path / "samples.jsonl"
    with samples.open("a") as file:
        file.write('{"step": 5, "text": "after the last checkpoint, as a killed run leaves it"}\n')
    fit.train(recipe(pairs, steps=6), tmp_path, resume=True, device="cpu")
    rows = read_records(samples)
    assert [row["step"] for row in rows] == [4, 6]
    sources = [pair.split("\t")[0] for pair in pairs.read_text().splitlines()]
    assert all(row["text"].split("\n→")[0] in sources for row in rows)


def test_a_training_is_not_overwritten(done, pairs):
    with pytest.raises(
        CheckpointError, match="already contains a run\nhint: resume it with `clearformer train --resume"
    ):
        fit.train(recipe(pairs), done, device="cpu")


def test_finetuning_into_its_own_model_is_refused(done, pairs, tmp_path):
    (tmp_path / "model").symlink_to(done)
    with pytest.raises(CheckpointError, match="already contains a run"):
        fit.train(recipe(pairs, tmp_path / "model"), done, device="cpu")


def test_resuming_another_model_is_refused_and_changes_nothing(done, pairs):
    before = (done / "recipe.toml").read_text()
    other = recipe(pairs).with_model(d_ff=29)
    with pytest.raises(CheckpointError, match="does not fit the model"):
        fit.train(other, done, resume=True, device="cpu")
    assert (done / "recipe.toml").read_text() == before


def test_more_steps_go_on(pairs, tmp_path):
    fit.train(recipe(pairs), tmp_path, device="cpu")
    report = fit.train(recipe(pairs, steps=6), tmp_path, resume=True, device="cpu")
    assert report["steps"] == 6
    assert report["peak_mb"] > 50
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [2, 4, 4, 6, 6]
    assert Recipe.read(tmp_path / "recipe.toml").train.steps == 6


def test_a_spent_budget_is_still_judged_and_reported(pairs, tmp_path):
    """Cut off after the checkpoint of step 2, and given no more than that when it is resumed."""
    run = RunFolder(tmp_path)
    trainer, task = fit.set_up(recipe(pairs), run, torch.device("cpu"), World(), None)
    trainer.progress.seconds = 0.5
    for batches, count in (task.steps(World()).load(0, i, World()) for i in range(2)):
        trainer.step(batches, count)
    trainer.save()
    run.recipe.write_text(task.recipe.dump())
    report = fit.train(recipe(pairs, max_tokens=1), tmp_path, resume=True, device="cpu")
    assert (report["steps"], report["best_step"]) == (2, 2)
    assert report["valid"].keys() == {"loss", "bleu", "chrf"}
    assert load(tmp_path).translate(["abc1"])


def test_too_little_memory_on_a_gpu_is_an_error_with_advice(pairs, tmp_path, monkeypatch):
    def step(trainer: Trainer, *_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(MachineError, match="too small for this training\nhint: use smaller batches: ") as caught:
        fit.train(recipe(pairs), tmp_path / "a", device="cpu")
    assert "--set train.tokens=64 --set train.accumulation=4, or recompute activations: --set" in str(caught.value)
    with pytest.raises(MachineError, match=r"--set train\.accumulation=4$"):
        fit.train(recipe(pairs, recompute="blocks"), tmp_path / "b", device="cpu")


def test_float64_is_float64_throughout(pairs, tmp_path):
    fit.train(recipe(pairs, precision="float64"), tmp_path, device="cpu")
    tensors, _ = load_tensors(tmp_path / "last.safetensors")
    assert {t.dtype for name, t in tensors.items() if not name.startswith("optimizer.step")} == {torch.float64}
    fit.train(recipe(pairs, precision="float64", steps=5), tmp_path, resume=True, device="cpu")


def test_deterministic_kernels_suffice(pairs, tmp_path):
    """Every operation of a training has one; otherwise torch would raise."""
    try:
        for name in "ab":
            fit.train(recipe(pairs, deterministic=True), tmp_path / name, device="cpu")
    finally:
        torch.use_deterministic_algorithms(False)
    one, two = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in "ab")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_unknown_metric_is_said_before_training(pairs, tmp_path):
    with pytest.raises(ConfigError, match=r"metric = `blue`.*\nhint: did you mean `bleu`"):
        fit.train(recipe(pairs, metric="blue"), tmp_path, device="cpu")


def test_another_corpus_is_not_mistaken_for_the_one_prepared_before(pairs, tmp_path):
    """A first training into the folder ended before anything was saved; the second has other pairs."""
    out, other = tmp_path / "out", tmp_path / "other.tsv"
    other.write_text("".join(f"z{i}z\tzz{i}\n" for i in range(59)))
    fit.train(recipe(pairs), out, device="cpu")
    (out / "last.safetensors").unlink()
    with pytest.raises(CheckpointError, match="already contains a run"):  # its model is worth keeping
        fit.train(recipe(other), out, device="cpu")
    (out / "model.safetensors").unlink()
    fit.train(recipe(other), out, device="cpu")
    assert "z" in load(out).source_tokenizer.pieces(load(out).source_tokenizer.encode(["z1z"])[0])


def test_preparation_that_was_killed_can_be_resumed(pairs, tmp_path):
    run = RunFolder(tmp_path)
    run.recipe.write_text(recipe(pairs).dump())
    draft = run.data / ".train.safetensors.x1"
    draft.mkdir(parents=True)
    (tmp_path / ".recipe.toml.123").write_text("half a rec")
    (tmp_path / ".recipe.toml.swp").write_text("an editor's")
    assert fit.train(recipe(pairs), tmp_path, resume=True, device="cpu")["steps"] == 4
    assert not draft.exists()
    assert [path.name for path in tmp_path.glob(".*")] == [".recipe.toml.swp"]


def test_finetuning_can_be_resumed_without_the_model_it_came_from(done, pairs, tmp_path):
    """The first thing it saves is where it starts: cut off at once and resumed, it does not start from nothing."""
    base = tmp_path / "base"
    shutil.copytree(done, base)
    settings = recipe(pairs, base, steps=2)
    whole = fit.train(settings, tmp_path / "whole", device="cpu")
    run = RunFolder(tmp_path / "cut")
    trainer, task = fit.set_up(settings, run, torch.device("cpu"), World())
    trainer.save()
    shutil.rmtree(base)
    resumed = fit.train(Recipe.read(run.recipe), run.path, resume=True, device="cpu")
    assert resumed["valid"] == whole["valid"]
    assert Recipe.read(run.recipe) == task.recipe


def test_what_is_written_at_the_start_stands_at_the_end(done, pairs, tmp_path, monkeypatch):
    """recipe.toml is final before the first example is stored: with vocabulary, base and its fingerprint."""
    written = []
    store = TranslationTask.store

    def watch(task):
        written.append(task.run.recipe.read_text())
        store(task)

    monkeypatch.setattr(TranslationTask, "store", watch)
    for name, asked in (("new", recipe(pairs)), ("tuned", recipe(pairs, done))):
        fit.train(asked, tmp_path / name, device="cpu")
        assert (tmp_path / name / "recipe.toml").read_text() == written.pop()


@pytest.mark.parametrize("moment", ["learn", "save", "store"])
@pytest.mark.parametrize("way", ["resume", "rerun"])
def test_a_full_finetuning_killed_while_it_prepares_goes_on(done, pairs, tmp_path, monkeypatch, moment, way):
    """It could neither be resumed, without a recipe.toml, nor begun again, with a tokenizer.json there already."""

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    settings = recipe(pairs, done, steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, moment, die)
        with pytest.raises(Killed):
            fit.train(settings, tmp_path / "run", device="cpu")
    is_resumed = way == "resume" and (tmp_path / "run" / "recipe.toml").exists()
    again = Recipe.read(tmp_path / "run" / "recipe.toml") if is_resumed else settings
    report = fit.train(again, tmp_path / "run", resume=is_resumed, device="cpu")
    assert report["valid"] == fit.train(settings, tmp_path / "whole", device="cpu")["valid"]


def test_weights_of_a_base_are_read_once(done, pairs, tmp_path, monkeypatch):
    """And none where a header will do: planning reads no tensor."""
    reads = []
    for name in ("load_tensors", "map_tensors"):
        original = getattr(loading_open, name)
        monkeypatch.setattr(loading_open, name, lambda path, original=original: reads.append(path) or original(path))
    short = ["train.steps=2", "train.tokens=128", "tuning.lora.targets=['q']"]
    finetune(done, pairs=pairs, method="lora", out=tmp_path / "run", settings=short, device="cpu")
    assert reads == [done / "model.safetensors"]


def test_two_trainings_cannot_share_a_folder(pairs, tmp_path):
    with RunFolder(tmp_path).lock(), pytest.raises(CheckpointError, match="another process is training in"):
        fit.train(recipe(pairs), tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["tokenizer.json", "data/train.tsv", "data/train.safetensors"])
def test_what_is_not_ours_is_left_alone(pairs, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    with pytest.raises(CheckpointError, match=r"is not a run folder, but contains `(data|tokenizer.json)`"):
        fit.train(recipe(pairs), tmp_path, device="cpu")
    assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize(
    ("n", "asked", "expected"), [(11, 5, [0, 2, 4, 6, 8]), (7, 6, [0, 1, 2, 3, 4, 5]), (3, 7, [0, 1, 2])]
)
def test_validation_is_spread_over_the_whole_set(n, asked, expected):
    assert evenly_spaced(list(range(n)), asked) == expected


@pytest.mark.parametrize(
    ("train", "device", "is_resumed", "expected"),
    [
        ({}, "cpu", False, "free"),
        ({}, "cuda", False, "fixed"),
        ({"compile": "off"}, "cuda", False, "free"),
        ({"deterministic": True}, "cuda", False, "fixed"),
        ({"recompute": "blocks"}, "cuda", False, "free"),
        ({}, "cuda", True, "free"),
        ({"batches": "fixed"}, "cpu", True, "fixed"),
        ({"batches": "free"}, "cuda", False, "free"),
    ],
)
def test_shapes_of_batches_are_settled_before_the_run(train, device, is_resumed, expected, pairs, tmp_path):
    """A run that began without the setting keeps its free shapes when it is resumed."""
    before = recipe(pairs)
    before = before.with_tables(train=before.train.changed(**train))
    run = RunFolder(tmp_path)
    if is_resumed:
        run.last.touch()
    assert fit.with_batches(before, run, torch.device(device), World()).train.batches == expected
    if expected == "fixed" and device == "cuda":
        two = World(size=2)
        slow = before.with_tables(optim=before.optim.changed(kind="rmsprop"))
        assert fit.with_batches(before, run, torch.device(device), two).train.batches == "free"
        assert fit.with_batches(slow, run, torch.device(device), World()).train.batches == "free"


@pytest.mark.parametrize(
    ("train", "device", "expected"),
    [
        ({}, "cpu", ("off", False)),
        ({}, "cuda", ("graph", True)),
        ({"compile": "graph"}, "cuda", ("graph", True)),
        ({"compile": "graph"}, "cpu", ("graph", False)),
        ({"compile": "off"}, "cuda", ("off", False)),
        ({"deterministic": True}, "cuda", ("graph", True)),
        ({"deterministic": True, "steps": 10_000_000}, "cuda", ("graph", True)),
        ({"max_seconds": 60.0, "steps": 10_000_000}, "cuda", ("graph", True)),
        ({"max_tokens": 1000, "steps": 10_000_000}, "cuda", ("graph", True)),
        ({"batches": "free"}, "cuda", ("off", False)),
        ({"recompute": "blocks"}, "cuda", ("off", False)),
        ({"recompute": "blocks", "compile": "whole"}, "cuda", ("whole", False)),
    ],
)
def test_how_a_run_is_sped_up(train, device, expected, pairs, tmp_path):
    before = recipe(pairs)
    before = before.with_tables(train=before.train.changed(**{"compile": "auto", "batches": "fixed", **train}))
    task = task_named("translation")(before, RunFolder(tmp_path))
    model, where = build_model(before.model.changed(source_vocab=29, target_vocab=29)), torch.device(device)
    assert fit.how_to_run(task, model, task.build_objective(), where, World()) == expected
    plugin = nn.Linear(2, 3)  # a model that does not declare is_recordable
    assert fit.how_to_run(task, plugin, task.build_objective(), where, World())[1] is False


@pytest.mark.parametrize(
    ("train", "expected", "words"),
    [
        ({}, "off", "training recomputes activations, so its steps are not recorded as CUDA graphs"),
        ({"steps": 10**12}, "blocks", "training compiles the blocks of the model and recomputes activations, so"),
        ({"compile": "graph"}, "graph", "cannot be recorded (train.recompute = blocks): train.compile = graph has no"),
    ],
)
def test_recomputed_steps_are_not_recorded_and_the_run_says_so(
    train, expected, words, pairs, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(compiling, "can_compile", lambda: True)
    settings = {"compile": "auto", "batches": "fixed", "recompute": "blocks", **train}
    before = recipe(pairs)
    before = before.with_tables(train=before.train.changed(**settings))
    task = task_named("translation")(before, RunFolder(tmp_path))
    model = build_model(before.model.changed(source_vocab=29, target_vocab=29))
    assert fit.how_to_run(task, model, task.build_objective(), torch.device("cuda"), World()) == (expected, False)
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("parallel", ["replicate", "shard"])
@pytest.mark.parametrize(("steps", "expected"), [(4, "off"), (10**12, "blocks")])
def test_several_processes_compile_blocks_for_a_long_run(
    parallel, steps, expected, pairs, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(compiling, "can_compile", lambda: True)
    before = recipe(pairs, parallel=parallel, steps=steps, compile="auto", batches="free")
    task = task_named("translation")(before, RunFolder(tmp_path))
    model, cuda = build_model(before.model.changed(source_vocab=29, target_vocab=29)), torch.device("cuda")
    assert fit.how_to_run(task, model, task.build_objective(), cuda, World(size=2)) == (expected, False)
    assert "has several processes, so its steps are not" in " ".join(capsys.readouterr().err.split())
    assert fit.how_to_run(task, model, task.build_objective(), cuda, World(1, 2)) == (expected, False)
    assert capsys.readouterr().err == ""


def test_recomputing_changes_no_bit_and_can_begin_at_any_step(done, pairs, tmp_path):
    """A run with recomputation, and one that is resumed with it after two of its four steps."""
    fit.train(recipe(pairs, recompute="blocks"), tmp_path / "straight", device="cpu")
    fit.train(recipe(pairs, steps=2, validate_every=2, save_every=2), tmp_path / "resumed", device="cpu")
    fit.train(recipe(pairs, recompute="blocks"), tmp_path / "resumed", resume=True, device="cpu")
    plain = load_tensors(done / "last.safetensors")[0]
    for name in ("straight", "resumed"):
        other = load_tensors(tmp_path / name / "last.safetensors")[0]
        assert plain.keys() == other.keys()
        assert all(torch.equal(plain[key], other[key]) for key in plain)
    assert Recipe.read(tmp_path / "resumed" / "recipe.toml").train.recompute == "blocks"
    losses, others = (
        [line["loss"] for line in read_metrics(folder / "metrics.jsonl")] for folder in (done, tmp_path / "straight")
    )
    assert losses == others


def test_recompute_is_none_or_blocks(pairs):
    with pytest.raises(ConfigError, match=r"recompute = .*block.*") as caught:
        recipe(pairs, recompute="block")
    assert "'none' or 'blocks'" in str(caught.value)
