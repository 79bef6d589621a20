"""generate, score, fill, repair, evaluate and train --text, through the command line."""

import json
import re
from pathlib import Path

import pytest

import clearformer

from ..bounds import float32_bound

RHYME = "one two buckle my shoe\nthree four knock at the door\n"
SIZES = [
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_model=28",
    "model.d_ff=46",
    "model.max_length=61",
    "train.tokens=610",
    "optim.lr=0.02",
    "schedule.warmup=5",
    "train.steps=200",
    "train.validate_every=100",
    "train.ema=0.9",
    "model.dropout=0",
    "model.attention_dropout=0",
]


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(RHYME * 61)
    return path


@pytest.fixture(scope="session")
def poet(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that has learnt two lines."""
    folder = tmp_path_factory.mktemp("runs") / "poet"
    clearformer.train(text=book, out=folder, settings=SIZES, device="cpu")
    return folder


def test_generate_writes_after_the_prompt(cli, poet: Path) -> None:
    shown = cli("generate", "--model", poet, "--temperature", "0", "--max-new", "13", "--prompt", "one two")
    assert (shown.code, shown.out) == (0, "one two buckle my sh\n")
    assert cli("generate", "--model", poet, "--temperature", 0, "--stop", " my", "one two").out == "one two buckle\n"
    lines = cli("generate", "--model", poet, "--temperature", 0, "--max-new", 5, stdin=b"one two\nthree\n").out
    assert lines == "one two buck\nthree four\n"


def test_a_translator_answers_instead(cli, run: Path) -> None:
    said = cli("translate", "--model", run, "--beam", 1, "the dog sees a tree.").out
    assert cli("generate", "--model", run, "--temperature", 0, "the dog sees a tree.").out == said
    told = clearformer.generate(run, ["the dog sees a tree."], temperature=0)
    assert told[0][0].text == said.strip()


def test_generate_as_json_has_every_sample(cli, poet: Path) -> None:
    arguments = ("generate", "--model", poet, "--n", 3, "--seed", 7, "--max-new", 9, "--json", "one", "three")
    rows = json.loads(cli(*arguments).out)["continuations"]
    assert [row["prompt"] for row in rows] == ["one"] * 3 + ["three"] * 3
    assert rows == json.loads(cli(*arguments).out)["continuations"]
    for row in rows:
        assert sum(row["logprobs"]) == pytest.approx(row["logprob"], abs=float32_bound(9, -row["logprob"]), rel=0)
        assert row["ended"] in ("length", "eos")
    told = clearformer.generate(poet, ["one", "three"], n=3, seed=7, max_new=9, temperature=0.8)
    assert [one.text for some in told for one in some] == [row["text"] for row in rows]


def test_score_ranks_and_says_how(cli, poet: Path) -> None:
    rows = json.loads(cli("score", "--model", poet, "--json", "knock at the shoe", "knock at the door").out)["scores"]
    assert [row["text"] for row in rows] == ["knock at the door", "knock at the shoe"]
    assert set(rows[0]) == {"text", "logprob", "tokens", "perplexity"}
    assert rows[0]["logprob"] > rows[1]["logprob"]
    *_, tokens, perplexity, text = cli("score", "--model", poet, "knock at the door").out.split("\t")
    assert (tokens, text) == ("17", "knock at the door\n")
    assert re.fullmatch(r"\d+\.\d{4}", perplexity)
    assert float(perplexity) == pytest.approx(rows[0]["perplexity"], abs=1e-4)  # alone and beside another: a last digit


def test_score_judges_translations_by_their_source(cli, run: Path, poet: Path) -> None:
    rows = json.loads(
        cli("score", "--model", run, "--json", "--source", "the dog sees a tree.", "le chien voit un arbre.").out
    )["scores"]
    expected = clearformer.load(run).score(["the dog sees a tree."], ["le chien voit un arbre."])
    assert rows[0]["logprob"] == pytest.approx(expected[0], abs=1e-5)
    for model, more, said in (
        (run, (), "is a translator"),
        (poet, ("--source", "x"), "is a language model, not a translator"),
    ):
        refused = cli("score", "--model", model, *more, "le chien")
        assert refused.code == 1
        assert said in refused.err


def test_fill_and_repair_find_the_word(cli, poet: Path) -> None:
    filled = json.loads(cli("fill", "--model", poet, "--json", "three four ___ at the door").out)["words"]
    assert filled[0]["word"] == "knock"
    repaired = json.loads(cli("repair", "--model", poet, "--json", "three four at the door").out)["repairs"]
    assert (repaired[0]["word"], repaired[0]["position"]) == ("knock", 2)
    given = cli("fill", "--model", poet, "--candidates", "shoe,door", "three four knock at the ___")
    assert [line.split("\t")[2] for line in given.out.splitlines()] == ["door", "shoe"]
    assert "has 0 blanks" in cli("fill", "--model", poet, "three four").err


def test_evaluate_tells_the_perplexity_of_a_text(cli, poet: Path, book: Path) -> None:
    told = json.loads(cli("evaluate", "--model", poet, "--text", book, "--json", "--device", "cpu").out)
    assert told["tokens"] == len(RHYME) * 61 + 1
    assert 1.0 < told["perplexity"] < 3.0
    assert cli("evaluate", "--model", poet, "--text", book, "--device", "cpu").out.startswith("perplexity 1.")


def test_another_book_changes_what_is_written(cli, poet: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("one two knock at my shoe\n" * 61)
    arguments = ("--text", f"{other},{other}", "--valid", other, "--method", "lora", "--out", tmp_path / "run")
    told = cli("finetune", "--model", poet, *arguments, "--device", "cpu")
    assert (told.code, told.out) == (0, f"{tmp_path / 'run'}\n"), told.err
    assert "characters of training text model: LoRA fine-tuning of" in " ".join(told.err.split())
    merged = cli("merge", tmp_path / "run", tmp_path / "merged")
    assert merged.code == 0, merged.err
    for run in (tmp_path / "run", tmp_path / "merged"):
        shown = cli("generate", "--model", run, "--temperature", "0", "--max-new", "9", "--prompt", "one two")
        assert shown.out == "one two knock at\n"
    rows = json.loads(cli("score", "--model", tmp_path / "run", "--json", "two buckle", "two knock").out)["scores"]
    assert rows[0]["text"] == "two knock"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--text", "BOOK", "--pairs", "BOOK"), "--pairs and --text cannot be combined"),
        (("train", "--text", "BOOK", "--model", "transformer-tiny"), "transformer-tiny is a model for translation"),
        (("train", "--pairs", "BOOK", "--model", "gpt2"), "gpt2 is a model for causal-lm"),
        (("train", "--text", "none.txt"), "none.txt does not exist"),
        (("finetune", "--model", "POET", "--text", "BOOK", "--pairs", "BOOK"), "--pairs and --text cannot be combined"),
        (("finetune", "--model", "POET", "--pairs", "BOOK"), "is a model for causal-lm, not for translation"),
        (("finetune", "--model", "RUN", "--text", "BOOK"), "is a model for translation, not for text"),
        (("finetune", "--model", "POET", "--text", "none.txt"), "none.txt does not exist"),
        (("finetune", "--model", "POET"), "no data to fine-tune on"),
        (("translate", "--model", "POET", "x"), "is a language model: it cannot translate"),
        (("generate", "--model", "RUN", "--chat", "x"), "is a translator: it has no chat template"),
        (("evaluate", "--model", "POET"), "no data to evaluate on"),
        (("generate", "--model", "POET", "one two " * 30), "reads at most 61"),
    ],
)
def test_mistakes(cli, book: Path, poet: Path, run: Path, arguments: tuple[str, ...], said: str) -> None:
    places = {"BOOK": book, "POET": poet, "RUN": run}
    result = cli(*(places.get(argument, argument) for argument in arguments))
    assert result.code == 1
    assert said in result.err
    assert "\nhint: " in result.err
    assert "Traceback" not in result.err


def test_zero_configuration_says_what_it_chose(cli, book: Path) -> None:
    shown = cli("train", "--text", book, "--dry-run", "--json", "--device", "cpu")
    assert "characters of training text model: gpt with 4 layers, width 128" in " ".join(shown.err.split())
    recipe = json.loads(shown.out)
    assert (recipe["text"]["kind"], recipe["text"]["whitespace"]) == ("char", "keep")
    assert recipe["model"]["kind"] == "gpt"
