"""train, score, fill and repair with a BERT, through the command line."""

import json
from pathlib import Path
from random import Random

import pytest

import clearformer

VERBS = {"sees": "trees", "likes": "bones", "hears": "songs"}
RECIPE = """
[data]
train = {{ path = "{path}", documents = "line" }}
held_out = 0.1
[text]
kind = "word"
min_frequency = 1
extra = ["[MASK]"]
[model]
kind = "bert"
n_layers = 2
d_model = 36
d_ff = 46
n_heads = 3
residual = "pre"
max_length = 13
dropout = 0.0
attention_dropout = 0.0
[optim]
lr = 0.01
[schedule]
warmup = 5
[train]
steps = 300
tokens = 403
validate_every = 100
ema = 0.9
"""


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that has read who does what: which verb, its thing tells, and the reverse."""
    folder, chance = tmp_path_factory.mktemp("bert"), Random(0)
    animals = ("dog", "cat", "bird", "fish")
    tales = ((chance.choice(animals), chance.choice(list(VERBS)), chance.choice(animals)) for _ in range(400))
    (folder / "tales.txt").write_text("".join(f"the {a} {v} {VERBS[v]} and the {b}\n" for a, v, b in tales))
    (folder / "bert.toml").write_text(RECIPE.format(path=folder / "tales.txt"))
    clearformer.train(folder / "bert.toml", out=folder / "run", device="cpu")
    return folder / "run"


def test_fill_sees_both_sides(cli, reader: Path) -> None:
    filled = json.loads(cli("fill", "--model", reader, "--json", "the cat ___ songs and the dog").out)["words"]
    assert (filled[0]["word"], filled[0]["position"]) == ("hears", 2)
    assert filled[0]["share"] == filled[0]["probability"] > 0.5
    given = cli("fill", "--model", reader, "--candidates", "trees,bones", "the cat likes ___ and the dog")
    assert [line.split("\t")[2] for line in given.out.splitlines()] == ["bones", "trees"]


def test_repair_finds_the_place(cli, reader: Path) -> None:
    best = json.loads(cli("repair", "--model", reader, "--json", "the cat songs and the dog").out)["repairs"][0]
    assert (best["word"], best["position"]) == ("hears", 2)


def test_score_ranks(cli, reader: Path) -> None:
    texts = ("the cat likes songs and the dog", "the cat likes bones and the dog")
    rows = json.loads(cli("score", "--model", reader, "--json", *texts).out)["scores"]
    assert rows[0]["text"] == "the cat likes bones and the dog"
    assert rows[0]["tokens"] == 7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("generate", "the cat"), "is a masked language model: it cannot generate"),
        (("translate", "the cat"), "is a masked language model: it cannot translate"),
        (("score", "--source", "x", "the cat"), "is a masked language model, not a translator"),
        (("fill", "the cat"), "has 0 blanks, but exactly one is required"),
    ],
)
def test_mistakes(cli, reader: Path, arguments: tuple[str, ...], said: str) -> None:
    result = cli(arguments[0], "--model", reader, *arguments[1:])
    assert result.code == 1
    assert said in result.err
    assert "\nhint: " in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("model", "objective", "reserved"), [("bert", "masked-lm", "[MASK]"), ("t5", "span-corruption", "<extra_id_0>")]
)
def test_zero_configuration_asks_each_model_what_it_can_learn(
    cli, tmp_path: Path, model: str, objective: str, reserved: str
) -> None:
    (tmp_path / "book.txt").write_text("A man pulled a cart.\nThe cart was full of stones.\n" * 50)
    chosen = ("train", "--text", tmp_path / "book.txt", "--model", model, "--device", "cpu")
    recipe = json.loads(cli(*chosen, "--dry-run", "--json").out)
    assert recipe["objective"]["kind"] == objective
    assert recipe["text"]["extra"][0] == reserved
    assert recipe["model"]["d_model"] == 128
    small = [word for key in ("train.steps=2", "model.d_model=32", "data.length=16") for word in ("--set", key)]
    done = cli(*chosen, *small, "--out", tmp_path / "run")
    assert (done.code, done.out) == (0, f"{tmp_path / 'run'}\n")
