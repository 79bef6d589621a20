import json
from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data import parallel, sources
from clearformer.data.collate import TokenBatches
from clearformer.data.corpora import PairCorpora
from clearformer.data.pairs import named_pair_columns
from clearformer.data.parallel import PairSurvey, read_test, survey_pairs
from clearformer.data.store import PairStore
from clearformer.recipe import Recipe
from clearformer.tasks.translation import TranslationTask
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.verbs.train import train

N = 83


def prepare(table: dict, folder: Path) -> TranslationTask:
    task = fit.prepare(Recipe.parse(table, "test"), RunFolder(folder), World(), None, None)
    assert isinstance(task, TranslationTask)
    return task


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepare")
    (folder / "pairs.tsv").write_text("".join(f"{'ab' * (i % 5 + 1)}{i}\t{'c' * (i % 7 + 1)}{i}\n" for i in range(N)))
    table = {"data": {"train": {"path": folder / "pairs.tsv"}, "held_out": 0.2}, "text": {"kind": "char"}}
    table["train"] = {"tokens": 64}
    return prepare(table, folder / "run")


def rows_of(task, split):
    return PairStore(task.path(split))


def test_every_pair_is_trained_or_validated_on(task):
    valid = json.loads((task.run.data / "valid.json").read_text())
    assert len(rows_of(task, "train")) + len(rows_of(task, "valid")) == N
    assert len(rows_of(task, "valid")) == len(valid) > 0


@pytest.mark.parametrize(("accumulation", "size"), [(1, 1), (3, 1), (2, 2)])
def test_ranks_share_a_step_and_agree_on_its_count(task, accumulation, size):
    steps = Steps(task.split("train"), accumulation * size)
    for position in range(steps.count(0)):
        loads = [steps.load(0, position, World(rank, size)) for rank in range(size)]
        assert [len(batches) for batches, _ in loads] == [accumulation] * size
        assert {count for _, count in loads} == {sum(batch.n_tokens for batches, _ in loads for batch in batches)}


def test_steps_are_the_batches_of_the_epoch_in_order(task):
    split = task.split("train")
    steps = Steps(split, 1)
    for position, rows in enumerate(TokenBatches(split.store.lengths, 64, 0).epoch(1)):
        (batch,), _ = steps.load(1, position, World())
        assert torch.equal(batch.labels, split.batch(np.asarray(rows)).labels)


def test_two_tokenizers_replace_a_shared_one(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"ab{i}\tcd{i}\n" for i in range(N)))
    table = {"data": {"train": {"path": tmp_path / "pairs.tsv"}}, "text": {"kind": "char", "shared": False}}
    table["model"] = {"share": "decoder"}
    source, target = prepare(table, tmp_path / "run").tokenizers
    assert source.fingerprint() != target.fingerprint()


@pytest.mark.parametrize("own", [(), ("valid",), ("test",), ("valid", "test")])
def test_what_has_a_corpus_of_its_own_takes_no_share_of_training(own, tmp_path):
    """Every pair of the training corpus lands in exactly one split, and the test pairs are kept with the run."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(N)))
    (tmp_path / "own.tsv").write_text("own\tone\n")
    data = {"train": {"path": tmp_path / "pairs.tsv"}, "held_out": 0.2, "held_out_test": 0.3}
    data |= {split: {"path": tmp_path / "own.tsv"} for split in own}
    task = prepare({"data": data, "text": {"kind": "char"}}, tmp_path / "run")
    n_valid = 0 if "valid" in own else len(rows_of(task, "valid"))
    n_test = 0 if "test" in own else len(read_test(task.run.data))
    assert len(rows_of(task, "train")) + n_valid + n_test == N
    assert (n_valid > 5, n_test > 5) == ("valid" not in own, "test" not in own)
    if "test" in own:
        assert read_test(task.run.data) == [("own", "one")]


def test_training_on_pairs_reads_the_corpus_twice(tmp_path, monkeypatch):
    """One pass surveys, filters and samples for the tokenizer, one tokenises. `probe` looks at the first line alone."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"a{i}\tb{i}\n" for i in range(N)))
    lines = []
    original = sources.read_lines_with_ends

    def count(file):
        for line in original(file):
            lines.append(file)
            yield line

    monkeypatch.setattr(sources, "read_lines_with_ends", count)
    short = ["train.steps=1", "model.d_model=16", "model.n_heads=2", "model.d_ff=16", "train.tokens=256"]
    train(pairs=path, out=tmp_path / "run", settings=short, device="cpu")
    assert 2 * N <= len(lines) <= 2 * N + 3  # the header was looked for, the first pair probed


def test_a_large_corpus_is_sampled_and_spills_to_disk(tmp_path, monkeypatch):
    """Beyond the first lines fewer and fewer are kept; what is kept comes back as it was, in order."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {i}\tZiel {i}\n" for i in range(2000)), encoding="utf-8")
    monkeypatch.setattr(parallel, "SAMPLE", 200)
    monkeypatch.setattr(parallel, "IN_MEMORY", 1000)
    data = PairCorpora.parse({"train": {"path": path}, "held_out": 0.25}, "test")
    survey = survey_pairs(data)
    numbers = [int(pair.source.split()[1]) for pair in survey.sample.read(survey.fractions(data))]
    assert numbers == sorted(numbers)
    assert 0.6 * 100 < len([n for n in numbers if n < 100]) <= 100  # all but what is held out
    assert 100 < len(numbers) < 600
    assert survey.n_pairs == 2000
    assert all(
        pair.target == pair.source.replace("source", "Ziel")
        for pair in survey.sample.read(PairSurvey(1).fractions(data))
    )


def test_a_header_of_pairs_is_not_trained_on(tmp_path, capsys):
    path = tmp_path / "pairs.tsv"
    path.write_text("English\tGerman\n" + "".join(f"a{i}\tb{i}\n" for i in range(N)))
    short = ["train.steps=1", "model.d_model=16", "model.n_heads=2", "model.d_ff=16", "train.tokens=256"]
    train(pairs=path, out=tmp_path / "run", settings=short, device="cpu")
    said = capsys.readouterr().err
    assert "the first line is a header; using columns English and German" in said
    assert f"{N} pairs" in said
    path.write_text("".join(f"a{i}\tb{i}\n" for i in range(N)))
    assert named_pair_columns(path) == (0, 1)
