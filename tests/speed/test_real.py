"""Real rows in miniature, through the whole machinery: the same weights and batches on both sides."""

from dataclasses import replace
from pathlib import Path

import pytest

from clearformer.speed.context import Context
from clearformer.speed.rows import PEERS, Engine, Row, decoding, generating, ours
from clearformer.speed.runner import measure_row

pytestmark = pytest.mark.slow

SMALL = (
    "model.n_encoder_layers=1 model.n_decoder_layers=1 model.d_model=28 model.d_ff=46 model.n_heads=2 train.tokens=257"
)


@pytest.fixture
def here(tmp_path: Path) -> Context:
    return Context(str(tmp_path), "", 0, "cpu", 1, is_quick=True)


def test_translation_gives_the_same_tokens_as_hugging_face(here: Context) -> None:
    row = decoding("smoke", "translate", "cpu", size="transformer-smoke", batch=3, beam=2, length=7)
    entry = measure_row(replace(row, peers=row.peers[:1]), here, 1, print)
    assert entry["engines"]["huggingface"]["same_tokens"] == 1
    medians = [entry["engines"][name]["median"] for name in ("here", "huggingface")]
    assert entry["ratios"]["huggingface"] == pytest.approx(medians[0] / medians[1], rel=0.01)


def test_generation_gives_the_same_tokens_as_hugging_face(here: Context) -> None:
    row = generating(3)
    options = {"size": "gpt-smoke", "batch": 3, "prompt": 5, "length": 11, "precision": "float32"}
    row = replace(row, here=replace(row.here, options=options), peers=(replace(row.peers[0], options=options),))
    entry = measure_row(row, here, 1, print)
    assert entry["engines"]["huggingface"]["same_tokens"] == 1


def test_training_by_the_command_beside_a_plain_loop(here: Context) -> None:
    options = {"corpus": "random_pairs", "corpus_options": {"n": 300}, "words": ["--pairs", "{corpus}"]}
    train = ours("train", **options, settings=SMALL.split(), log_every=10, n_batches=5)
    plain = Engine("plain", "nn.Transformer", f"{PEERS}.plain:train_transformer")
    marian = Engine("marian", "Marian", f"{PEERS}.huggingface:train_marian", {}, ("transformers",))
    entry = measure_row(Row("train", "train", "cpu", train, (plain, marian)), here, 1, print)
    assert {"plain", "marian"} <= entry["ratios"].keys(), entry
    assert all(value > 0 for value in entry["engines"]["here"]["values"])


def test_a_command_that_fails_is_reported_in_its_words(here: Context) -> None:
    options = {"corpus": "random_pairs", "corpus_options": {"n": 5}, "words": ["--pairs", "{corpus}"]}
    entry = measure_row(
        Row("bad", "train", "cpu", ours("train", **options, settings=["train.stops=1"])), here, 1, print
    )
    assert "[train]: unknown key `stops` hint: did you mean `steps`?" in entry["error"]
