import numpy as np
import pytest
import torch

from clearformer.checkpoint import RunFolder
from clearformer.data.collate import TokenBatches
from clearformer.prepare import CorpusSteps, load_tokenizers, prepare
from clearformer.prepare import test_pairs as kept_for_the_test
from clearformer.recipe import Recipe
from clearformer.training.distributed import World

N = 83


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepare")
    (folder / "pairs.tsv").write_text("".join(f"{'ab' * (i % 5 + 1)}{i}\t{'c' * (i % 7 + 1)}{i}\n" for i in range(N)))
    table = {"data": {"train": {"path": folder / "pairs.tsv"}, "held_out": 0.2}, "text": {"kind": "char"}}
    return prepare(Recipe.parse(table, "test"), RunFolder(folder / "run"))


def test_every_pair_is_trained_or_validated_on(corpus):
    assert len(corpus.train) + len(corpus.valid) == N
    assert len(corpus.valid) == len(corpus.valid_text) > 0


@pytest.mark.parametrize(("accumulation", "size"), [(1, 1), (3, 1), (2, 2)])
def test_ranks_share_a_step_and_agree_on_its_count(corpus, accumulation, size):
    steps = CorpusSteps(corpus, tokens=64, seed=0, accumulation=accumulation, world=World(0, size))
    assert steps.group == accumulation * size
    for position in range(steps.count(0)):
        loads = [steps.load(0, position, World(rank, size)) for rank in range(size)]
        assert [len(batches) for batches, _ in loads] == [accumulation] * size
        assert {count for _, count in loads} == {sum(batch.n_tokens for batches, _ in loads for batch in batches)}


def test_steps_are_the_batches_of_the_epoch_in_order(corpus):
    steps = CorpusSteps(corpus, tokens=64, seed=5, accumulation=1, world=World())
    for position, rows in enumerate(TokenBatches(corpus.train.lengths, 64, 5).epoch(1)):
        (batch,), _ = steps.load(1, position, World())
        assert torch.equal(batch.labels, corpus.batch(corpus.train, np.asarray(rows)).labels)


def test_two_tokenizers_replace_a_shared_one(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"ab{i}\tcd{i}\n" for i in range(N)))
    table = {"data": {"train": {"path": tmp_path / "pairs.tsv"}}, "text": {"kind": "char", "shared": False}}
    table["model"] = {"share": "decoder"}
    run = RunFolder(tmp_path / "run")
    prepare(Recipe.parse(table, "test"), run)
    source, target = load_tokenizers(run)
    assert source.fingerprint() != target.fingerprint()


@pytest.mark.parametrize("own", [(), ("valid",), ("test",), ("valid", "test")])
def test_what_has_a_corpus_of_its_own_takes_no_share_of_training(own, tmp_path):
    """Every pair of the training corpus lands in exactly one split, and the test pairs are kept with the run."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(N)))
    (tmp_path / "own.tsv").write_text("own\tone\n")
    data = {"train": {"path": tmp_path / "pairs.tsv"}, "held_out": 0.2, "held_out_test": 0.3}
    data |= {split: {"path": tmp_path / "own.tsv"} for split in own}
    run = RunFolder(tmp_path / "run")
    corpus = prepare(Recipe.parse({"data": data, "text": {"kind": "char"}}, "test"), run)
    n_valid = 0 if "valid" in own else len(corpus.valid)
    n_test = 0 if "test" in own else len(kept_for_the_test(run))
    assert len(corpus.train) + n_valid + n_test == N
    assert (n_valid > 5, n_test > 5) == ("valid" not in own, "test" not in own)
    if "test" in own:
        assert kept_for_the_test(run) == [("own", "one")]
