"""train --labels, finetune --method, classify, evaluate --labels and embed, through the command line."""

import json
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

import clearformer

sys.path.insert(0, str(Path(__file__).parents[1]))
from table_files import write_table

WORDS = ("the", "a", "film", "story", "plot", "actor", "scene", "long", "short", "old", "new", "calm", "and", "of")
SMALL = ["train.steps=120", "train.validate_every=60", "data.held_out=0.2", "train.tokens=600"]


def review(draw: Random, is_fine: bool) -> str:
    words = draw.choices(WORDS, k=draw.randint(2, 4))
    return " ".join([*words[:1], "fine" if is_fine else "dull", *words[1:]])


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, draw = tmp_path_factory.mktemp("labels") / "reviews.tsv", Random(3)
    path.write_text("".join(f"{review(draw, i % 2 == 1)}\t{('bad', 'good')[i % 2]}\n" for i in range(300)))
    return path


@pytest.fixture(scope="session")
def critic(reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that has learnt one word."""
    folder = tmp_path_factory.mktemp("runs") / "critic"
    clearformer.train(labels=reviews, out=folder, settings=SMALL, device="cpu")
    return folder


def test_a_dry_run_says_what_was_chosen(cli, reviews: Path) -> None:
    shown = cli("train", "--labels", reviews, "--dry-run", "--json")
    recipe = json.loads(shown.out)
    assert (recipe["model"]["kind"], recipe["model"]["base"]["kind"]) == ("classifier", "bert")
    assert recipe["data"]["train"] == {"path": str(reviews)}
    assert "labelled texts, " in shown.err
    named = json.loads(cli("train", "--labels", reviews, "-m", "roberta-base", "--dry-run", "--json").out)["model"]
    assert (named["base"]["preset"], named["base"]["n_segments"], named["base"]["word_head"]) == (
        "roberta-base",
        1,
        False,
    )


def test_classify_arguments_and_lines(cli, critic: Path) -> None:
    code, out, _ = cli("classify", "--model", critic, "the fine film", "a dull story")
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["good", "bad"]
    assert all(float(row[1]) > 0.7 for row in rows)
    assert cli("classify", "--model", critic, stdin=b"the fine film\na dull story\n").out == out
    first = cli("classify", "--model", critic, "--top", 2, "the fine film").out.split()
    assert (first[0], first[2]) == ("good", "bad")


def test_classify_as_json(cli, critic: Path) -> None:
    told = json.loads(cli("classify", "-m", critic, "--top", 5, "--json", "the fine film").out)["texts"]
    assert told == clearformer.classify(critic, ["the fine film"], top=5)
    (row,) = told
    assert (row["text"], row["label"]) == ("the fine film", "good")
    assert [one["label"] for one in row["top"]] == ["good", "bad"]
    assert sum(one["probability"] for one in row["top"]) == pytest.approx(1)


def test_evaluate_counts(cli, critic: Path, reviews: Path) -> None:
    told = json.loads(cli("evaluate", "--model", critic, "--labels", reviews, "--json", "--device", "cpu").out)
    assert told["accuracy"] > 0.95
    assert told["examples"] == 300 == sum(map(sum, told["confusion"]))
    assert told["classes"] == ["bad", "good"]
    lines = cli("evaluate", "--model", critic, "--labels", reviews, "--device", "cpu").out.splitlines()
    assert lines[0] == f"accuracy {told['accuracy']:.4f}"
    assert lines[-1] == "300 examples"


@pytest.mark.parametrize("kind", ["csv", "semicolons.csv", "jsonl", "parquet", "xlsx"])
def test_evaluate_on_another_file_type(cli, critic: Path, reviews: Path, kind: str, tmp_path: Path) -> None:
    """Trained on columns 0 and 1 of a .tsv file, evaluated on a file with names."""
    texts, labels = zip(*(line.split("\t") for line in reviews.read_text().splitlines()))
    path = write_table(kind, tmp_path, {"label": list(labels), "review": list(texts)})
    metrics = cli("evaluate", "--model", critic, "--labels", path, "--json", "--device", "cpu").out
    assert metrics == cli("evaluate", "--model", critic, "--labels", reviews, "--json", "--device", "cpu").out


def test_finetune_by_a_method(cli, critic: Path, tmp_path: Path) -> None:
    path, draw = tmp_path / "stars.jsonl", Random(5)
    rows = [{"body": review(draw, i % 2 == 1), "stars": 1 + i % 2} for i in range(120)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = cli(
        *("finetune", "--model", critic, "--labels", path, "--method", "lora", "--out", tmp_path / "run", "--json"),
        *("--text-columns", "body", "--label-column", "stars", "--device", "cpu"),
        *(word for setting in ["train.steps=30", "optim.lr=0.01"] for word in ("--set", setting)),
    )
    assert code == 0
    report = json.loads(out)
    assert "LoRA fine-tuning of" in err
    assert " trainable, " in err
    assert report["trainable"] < report["parameters"]
    assert cli("classify", "-m", tmp_path / "run", "the fine film").out.startswith("2\t")


def test_finetune_a_translator_by_a_method(cli, run: Path, corpus: Path, tmp_path: Path) -> None:
    code, out, _ = cli(
        *("finetune", "--model", run, "--pairs", corpus, "--method", "lora", "--out", tmp_path / "run", "--json"),
        *("--set", "train.steps=4", "--set", "train.validate_every=4", "--device", "cpu"),
    )
    assert code == 0
    assert json.loads(out)["trainable"] < 0.5 * json.loads(out)["parameters"]
    assert cli("translate", "-m", tmp_path / "run", "the dog sees a tree.").code == 0
    small, whole = ((folder / "model.safetensors").stat().st_size for folder in (tmp_path / "run", run))
    assert small < whole / 2


def test_what_it_learnt_is_seen_in_where_it_puts_texts(cli, critic: Path, reviews: Path, tmp_path: Path) -> None:
    arguments = ("--texts", reviews, "--out", tmp_path / "x.png", "--json")
    told = json.loads(cli("plot", "embeddings", "--model", critic, *arguments).out)
    assert (len(told["labels"]), set(told["labels"])) == (300, {"bad", "good"})
    first, second = (np.array(view["points"]) for view in told["views"].values())
    is_good = np.array(told["labels"]) == "good"
    apart, beside = (abs(p[is_good].mean(0) - p[~is_good].mean(0)).max() / p.std() for p in (first, second))
    assert apart > max(1.0, beside)  # what it learnt is what its texts differ by most


def test_embed_writes_a_table(cli, critic: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    shown = cli("embed", "--model", critic, "--out", out, stdin=b"the fine film\na dull story\n")
    assert (shown.code, shown.out) == (0, f"{out}\n")
    vectors = np.load(out)
    assert vectors.dtype == np.float32
    told = json.loads(cli("embed", "-m", critic, "--json", "the fine film", "a dull story").out)
    np.testing.assert_allclose(told["vectors"], vectors, atol=1e-6)
    assert (told["texts"], told["width"]) == vectors.shape == (2, 64)
    unit = json.loads(cli("embed", "-m", critic, "--unit", "--json", "the fine film").out)["vectors"][0]
    assert sum(x * x for x in unit) == pytest.approx(1, abs=1e-5)
    printed = cli("embed", "-m", critic, "the fine film").out.split("\t")
    assert float(printed[7]) == pytest.approx(vectors[0, 7], rel=1e-4)


def test_mistakes_are_one_sentence(cli, critic: Path, run: Path, reviews: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.tsv").write_text("a film\tfair\n")
    cases = [
        (("classify", "-m", run, "x"), "is a translator: it cannot classify"),
        (("translate", "-m", critic, "x"), "is a classifier: it cannot translate"),
        (("classify", "-m", tmp_path / "none", "x"), "there is no model"),
        (("evaluate", "-m", critic, "--labels", tmp_path / "odd.tsv"), "not occur in the training data: `fair`"),
        (("evaluate", "-m", critic), "no data to evaluate on"),
        (("train", "--labels", reviews, "--pairs", reviews), "--pairs and --labels cannot be combined"),
        (("finetune", "-m", critic, "--labels", reviews, "--method", "lorra"), "no fine-tuning method `lorra`"),
        (("finetune", "-m", critic, "--labels", reviews, "--text-columns", "0,1,2"), "expected one column or two"),
        (("embed", "-m", run, "x"), "cannot compute embeddings"),
        (("score", "-m", critic, "x"), "is a classifier: it cannot score"),
        (("export", critic, tmp_path / "out"), "classifier"),
    ]
    for arguments, problem in cases:
        code, out, err = cli(*arguments)
        assert (code, out) == (1, "")
        assert problem in err
        assert "\nhint: " in err


def test_classes_that_are_not_the_models_own(cli, critic: Path, tmp_path: Path) -> None:
    import shutil

    mine = Path(shutil.copytree(critic, tmp_path / "mine"))
    (mine / "classes.json").write_text('["good", "bad"]')
    assert "classes.json does not match the weights" in cli("classify", "-m", mine, "x").err
    (mine / "classes.json").unlink()
    assert "classes.json cannot be read" in cli("classify", "-m", mine, "x").err


def test_words_are_classified_line_by_line(cli, tmp_path: Path) -> None:
    draw, path = Random(7), tmp_path / "words.conll"
    rows = [[*draw.choices(WORDS, k=draw.randint(1, 4)), draw.choice(("Ada", "Ben"))] for _ in range(200)]
    path.write_text("".join("".join(f"{w} {'NAME' if w[0] in 'AB' else 'O'}\n" for w in row) + "\n" for row in rows))
    settings = [word for setting in SMALL for word in ("--set", setting)]
    shown = cli("train", "--labels", path, "--out", tmp_path / "run", "--device", "cpu", *settings)
    assert (shown.code, shown.out) == (0, f"{tmp_path / 'run'}\n")
    lines = cli("classify", "-m", tmp_path / "run", "the film Ada", "Ben").out.split("\n")
    assert [line.split("\t")[:2] for line in lines] == [
        ["the", "O"], ["film", "O"], ["Ada", "NAME"], [""], ["Ben", "NAME"], [""], [""],
    ]  # fmt: skip
    told = json.loads(cli("classify", "-m", tmp_path / "run", "--top", 2, "--json", "the Ada").out)["texts"]
    assert told == clearformer.classify(tmp_path / "run", ["the Ada"], top=2)
    assert [(one["word"], one["label"], len(one["top"])) for one in told[0]["words"]] == [
        ("the", "O", 2), ("Ada", "NAME", 2),
    ]  # fmt: skip
    out = cli("evaluate", "-m", tmp_path / "run", "--labels", path, "--device", "cpu").out.splitlines()
    assert out[0].startswith("accuracy 0.9") or out[0] == "accuracy 1.0000"
    assert out[-2:] == ["200 sentences", f"{sum(map(len, rows))} examples"]
    (tmp_path / "ragged.conll").write_text("the O\nfilm X O\n")
    code, _, err = cli("train", "--labels", tmp_path / "ragged.conll", "--out", tmp_path / "no")
    assert code == 1
    assert "ragged.conll:2: 3 columns, but earlier lines have 2\nhint: " in err
